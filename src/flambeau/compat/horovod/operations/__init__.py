"""Operations on tensors: blocking, asynchronous, in place and grouped."""
