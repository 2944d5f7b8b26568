"""What the suite `ops` knows of the operators: how each is called, and what a dense PyTorch makes of the same input.

One module per family. Each has `check(examiner, …)`, which calls every operator of the family it finds and leaves what
came of it in the examiner's ledger.
"""
