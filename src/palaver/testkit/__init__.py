"""The fake platform with fault injection, and the conformance suite for adapters."""
