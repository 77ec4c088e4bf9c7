"""What a store, an executor, an observer and a clock must do; the contracts are the docstrings."""
