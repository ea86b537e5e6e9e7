"""`horovod.common`: the parts of the API that all frameworks share."""
