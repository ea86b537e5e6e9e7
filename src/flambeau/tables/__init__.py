"""Embedding tables of any size: an index that maps any int64 id to a row, and the rows themselves.

No size is declared up front and nothing is ever moved as a whole: the index consists of many small
hash tables that grow one at a time, and rows live in slabs that are only ever added. All work on
rows is done by compiled kernels that process whole batches.
"""
