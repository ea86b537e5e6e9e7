"""Angel's job words."""

import pytest

from flambeau.cli.angel import epoch_line
from flambeau.compat.angel.words import parse_words
from flambeau.errors import ConfigError


def parsed(*words: str):
    return parse_words(["trainInput:rows", *words])[0]


def test_defaults_are_angels():
    job = parsed()
    assert (job.torch_model_path, job.batch_size, job.step_size) == ("model.pt", 512, 0.01)
    assert (job.optimizer, job.num_epoch, job.test_ratio) == ("adam", 10, 0.1)
    assert (job.decay, job.async_, job.num_data_partitions) == (0.001, True, 100)
    assert (job.evals, job.action_type, job.cluster) == (("auc",), "train", "local")


def test_words_are_read():
    job = parsed("batchSize:64", "stepSize:0.5", "async:false", "evals:auc,binary_acc", "workers:2")
    assert (job.batch_size, job.step_size, job.async_) == (64, 0.5, False)
    assert (job.evals, job.workers) == (("auc", "binary_acc"), 2)


def test_words_of_the_older_generation_mean_the_same():
    older, _ = parse_words(
        ["input:rows", "partitionNum:7", "torchModelPath:a.pt", "modulePath:out"]
    )
    assert older == parsed("numDataPartitions:7", "torchModelPath:a.pt", "torchOutputModelPath:out")


@pytest.mark.parametrize("word", ["dataFormat", "dataType", "format"])
def test_the_format_goes_by_several_names(word):
    assert parsed(f"{word}:dummy").data_format == "dummy"


def test_a_value_may_hold_colons_and_an_equals_sign():
    job, _ = parse_words(["trainInput:hdfs://name:9000/day=1/rows"])
    assert job.train_input == "hdfs://name:9000/day=1/rows"
    assert parse_words(["trainInput=a:b"])[0].train_input == "a:b"


def test_labels_are_mapped_in_one_word():
    assert parsed("labelMap:-1=0,1=1").label_map == {-1.0: 0.0, 1.0: 1.0}


def test_words_about_spark_are_given_back():
    assert parse_words(["trainInput:rows", "rowType:T_FLOAT_DENSE", "mode:local"])[1] == [
        "rowType",
        "mode",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trainInputs:rows"], "unknown argument 'trainInputs'; did you mean 'trainInput'"),
        (["trainInput:r", "bachSize:3"], "unknown argument 'bachSize'; did you mean 'batchSize'"),
        (["trainInput:r", "whatever:3"], "unknown argument 'whatever'; known: actionType"),
        (["batchSize:3"], "'trainInput' is missing"),
        (["trainInput:r", "batchSize:0"], "batchSize='0': .*greater than or equal to 1"),
        (["trainInput:r", "batchSize:few"], "batchSize='few': Input should be a valid integer"),
        (["trainInput:r", "stepSize:-1"], "stepSize='-1'"),
        (["trainInput:r", "testRatio:1"], "testRatio='1': Input should be less than 1"),
        (["trainInput:r", "async:maybe"], "async='maybe': Input should be a valid boolean"),
        (["trainInput:r", "optimizer:adams"], "did you mean 'adam'"),
        (["trainInput:r", "evals:auc,auk"], "unknown eval 'auk'; did you mean 'auc'"),
        (["trainInput:r", "dataType:libsvn"], "dataFormat='libsvn': .*did you mean 'libsvm'"),
        (["trainInput:r", "labelMap:-1"], "labelMap='-1': write label=number with commas"),
        (["trainInput:r", "cluster:moon"], "cluster='moon'"),
        (["trainInput:r", "actionType:predict"], "predict needs predictOutputPath"),
        (["trainInput:r", "input:s"], "'input' means the same as another word .trainInput."),
        (["trainInput:r", "modulePath:a.pt"], "modulePath:a.pt is where the trained model goes"),
        (
            ["trainInput:r", "torchModelPath:a.pt", "modulePath:hdfs://name/out"],
            "torchOutputModelPath='hdfs://name/out': .*files of this machine",
        ),
        (["trainInput"], "'trainInput' is not a word of a job: write key:value"),
        ([":r"], "':r' is not a word"),
    ],
)
def test_wrong_words_are_explained(words, message):
    with pytest.raises(ConfigError, match=message):
        parse_words(words)


def test_a_line_of_an_epoch_has_loss_and_evals_of_both():
    metrics = {"train/loss": 0.5, "train/accuracy": 0.75, "loss": 0.25, "accuracy": 1.0}
    expected = (
        "epoch 2 loss 0.500000 train acc 0.750000 validate loss 0.250000 validate acc 1.000000"
    )
    assert epoch_line(("acc",), 2, metrics) == expected


def test_without_held_out_data_a_line_is_about_training():
    assert epoch_line(("auc",), 1, {"train/loss": 0.5, "train/auc": 0.7}) == (
        "epoch 1 loss 0.500000 train auc 0.700000"
    )
