"""DingTalk: the robot of an internal app of a company."""
