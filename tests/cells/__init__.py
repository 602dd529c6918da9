"""From NVML's answers to the cells of the screen: one state of a GPU each, golden in text and colour.

``python -m tests.cells`` draws all of them anew; see ``git diff tests/cells/golden`` then.
"""
