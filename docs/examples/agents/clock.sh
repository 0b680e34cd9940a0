#!/bin/sh
# The smallest agent: one process for each turn reads the question and says the time.
# agent: {name: program, command: [sh, clock.sh], folder: ~/agents, per_turn: true}
read -r question && printf '{"type": "final", "text": "It is %s."}\n' "$(date -u +%H:%M)"
