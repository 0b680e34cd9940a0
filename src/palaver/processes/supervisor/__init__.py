"""The supervisor: a small program that owns one command, so that a gateway that dies loses none of it.

One supervisor runs for every process, however idle: these modules import only the smallest modules of the standard
library, and nothing of Palaver outside this package.
"""
