"""Any command of `flambeau`, for spark-submit, which takes scripts:

spark-submit --master yarn --num-executors 4 examples/spark/driver.py \
    angel trainInput:census torchModelPath:deepfm.pt cluster:spark workers:4
"""

from flambeau.cli import main

if __name__ == "__main__":
    main()
