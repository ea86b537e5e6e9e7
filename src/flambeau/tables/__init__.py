"""Embedding tables of any size: an index from any int64 id to a row, and the rows themselves.

No size is given up front and nothing is ever moved as a whole: the index is many small hash tables
that grow one at a time, rows live in slabs that are only ever added. All work on rows is done by
kernels that take a batch and give a batch.
"""
