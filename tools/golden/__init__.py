"""The independent judge of the reference: every op of the contract, written again in NumPy from its header alone."""
