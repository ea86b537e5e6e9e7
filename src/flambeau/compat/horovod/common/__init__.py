"""`horovod.common`: what interfaces of all frameworks share."""
