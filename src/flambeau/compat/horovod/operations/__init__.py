"""Operations on tensors in all of their forms."""
