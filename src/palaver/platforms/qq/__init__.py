"""QQ: an official bot, in groups and alone with people."""
