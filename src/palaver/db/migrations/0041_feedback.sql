-- What people think of the answer of a turn: 1 for thumbs up, -1 for thumbs down, 0 once it is taken back.
CREATE TABLE feedback (
  turn_no @int NOT NULL,
  identity TEXT NOT NULL,
  rating @int NOT NULL CHECK (rating IN (-1, 0, 1)),
  at @int NOT NULL,
  PRIMARY KEY (turn_no, identity)
) @strict @clustered;
