"""What SparkTorch's own tests import."""
