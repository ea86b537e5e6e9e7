"""TorchEstimator and TorchModel in a session of Spark."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression, RandomForestClassifier
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    MulticlassClassificationEvaluator,
    MultilabelClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.feature import StandardScaler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_toys import QUIET, Clicks, Image, Net, SparseLine, Tasks, numbers, vectors

import flambeau as fb
from flambeau.errors import ConfigError, DataError, ModelError
from flambeau.observe import read_events
from flambeau.spark import TorchEstimator, TorchModel, persistence

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "spark-ml.md"


@pytest.fixture(autouse=True)
def no_models_left() -> Iterator[None]:
    """Models are kept as long as their process; a test is one process here."""
    yield
    shutil.rmtree(persistence.temporary_folder())
    persistence.temporary_folder.cache_clear()


# Pools of threads that Spark's tuning leaves open are found whenever memory is cleared.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return vectors(spark).cache()


def estimator(**params: Any) -> TorchEstimator:
    return TorchEstimator(**{"batchSize": 16, "fitParams": QUIET, "learningRate": 0.05} | params)


def column(frame: DataFrame, name: str) -> Any:
    values = [row[0] for row in frame.orderBy("id").select(name).collect()]
    return np.array([each.toArray() if hasattr(each, "toArray") else each for each in values])


@pytest.fixture(scope="module")
def classifier(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> PipelineModel:
    """A pipeline that was trained."""
    stage = estimator(
        model=Net,
        modelParams={"hidden": 16},
        featuresCol="scaled",
        loss="cross_entropy",
        epochs=20,
        validationFraction=0.25,
        metrics=["accuracy"],
        checkpointDir=str(tmp_path_factory.mktemp("runs")),
    )
    scaler = StandardScaler(inputCol="features", outputCol="scaled")
    return Pipeline(stages=[scaler, stage]).fit(rows)


def test_models_of_spark_are_as_usable_after_a_fit_as_before(rows: DataFrame) -> None:
    two_classes = rows.withColumn("label", F.expr("double(a > 0)"))
    kinds = (LogisticRegression(maxIter=2), RandomForestClassifier(numTrees=2, maxDepth=2, seed=1))
    fitted, untouched = ([kind.fit(two_classes) for kind in kinds] for _ in range(2))
    evaluator = BinaryClassificationEvaluator()
    before = [evaluator.evaluate(model.transform(two_classes)) for model in fitted]
    estimator(model=torch.nn.Linear(4, 1), loss="bce").fit(two_classes)
    after = [evaluator.evaluate(model.transform(two_classes)) for model in untouched]
    assert after == before


def test_a_model_has_the_params_of_its_estimator(classifier: PipelineModel, tmp_path: Path) -> None:
    model = classifier.stages[1]
    model.save(str(tmp_path / "model"))
    for each in (model, TorchModel.load(str(tmp_path / "model"))):
        assert each.getEpochs() == 20
        assert each.getModelParams() == {"hidden": 16}
        assert each.getMetrics() == ["accuracy"]
        assert each.getLabelCol() == "label"
    assert model.getModel() is Net


def test_a_pipeline_classifies(classifier: PipelineModel, rows: DataFrame) -> None:
    scored = classifier.transform(rows)
    kinds = {field.name: field.dataType.simpleString() for field in scored.schema}
    assert kinds["prediction"] == "double"
    assert kinds["probability"] == kinds["rawPrediction"] == "vector"
    assert scored.columns[: len(rows.columns)] == rows.columns
    assert MulticlassClassificationEvaluator().evaluate(scored) > 0.8
    assert MulticlassClassificationEvaluator(metricName="logLoss").evaluate(scored) < 0.6


def test_predictions_are_those_of_the_network(
    classifier: PipelineModel, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier.stages[1]
    scaled = classifier.stages[0].transform(rows)
    given = torch.tensor(column(scaled, "scaled"), dtype=torch.float32)
    with torch.inference_mode():
        raw = model.torch()(given).double().numpy()
    scored = model.transform(scaled.drop("label"))
    np.testing.assert_allclose(column(scored, "rawPrediction"), raw, rtol=1e-6)
    assert column(scored, "prediction").tolist() == raw.argmax(1).tolist()
    # As before Spark 4.1, where all columns travel through Python.
    monkeypatch.delattr(F, "arrow_udf")
    older = model.transform(scaled.drop("label"))
    assert older.schema == scored.schema
    assert older.orderBy("id").collect() == scored.orderBy("id").collect()


def test_the_summary_tells_how_training_went(classifier: PipelineModel) -> None:
    summary = classifier.stages[1].summary
    assert summary.metrics["accuracy"] == summary.history[-1]["accuracy"]
    assert summary.report["rows"]["applied"] > 0


def test_a_saved_pipeline_is_loaded_by_spark_itself(
    classifier: PipelineModel, rows: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "saved")
    classifier.write().overwrite().save(path)
    loaded = PipelineModel.load(path)
    expected = classifier.transform(rows).select("id", "prediction", "probability").collect()
    assert loaded.transform(rows).select("id", "prediction", "probability").collect() == expected
    model = loaded.stages[1]
    assert model.getFeaturesCol() == "scaled"
    assert model.uid == classifier.stages[1].uid
    assert model.summary == classifier.stages[1].summary
    files = tmp_path / "saved" / "stages" / f"1_{model.uid}" / "files"
    assert json.loads((files / "model.json").read_text())["model"]["path"] == "spark_toys:Net"
    assert list(files.glob("checkpoints/*/dense.safetensors"))
    # Over what it was loaded from.
    model.write().overwrite().save(str(files.parent))
    assert TorchModel.load(str(files.parent)).torch().layers[0].out_features == 16


def test_a_copy_has_other_params(classifier: PipelineModel, rows: DataFrame) -> None:
    model = classifier.stages[1]
    copied = model.copy({model.predictionCol: "class", model.probabilityCol: None})
    scored = PipelineModel([classifier.stages[0], copied]).transform(rows)
    assert "class" in scored.columns
    assert "probability" not in scored.columns
    assert model.getPredictionCol() == "prediction"


def test_regression_on_columns_with_weights_and_early_stopping(rows: DataFrame) -> None:
    target = rows.withColumn("y", F.expr("a - 2 * b")).withColumn("w", F.lit(1.0))
    model = estimator(
        model=Net(outputs=1),
        inputCols=["a", "b", "c", "d"],
        labelCol="y",
        weightCol="w",
        loss="mse",
        epochs=10,
        learningRate=0.1,
        validationIndicatorCol="valid",
        earlyStoppingPatience=3,
        numWorkers=2,
    ).fit(target.withColumn("valid", F.expr("id % 4 = 0")))
    scored = model.transform(target)
    assert RegressionEvaluator(labelCol="y").evaluate(scored) < 1.0
    assert "probability" not in scored.columns
    best = min(entry["loss"] for entry in model.summary.history)
    valid = scored.filter("id % 4 = 0").select(F.avg(F.expr("pow(prediction - y, 2)"))).first()[0]
    assert valid == pytest.approx(best, rel=1e-4)


def test_one_logit_is_for_the_binary_evaluator(rows: DataFrame) -> None:
    labelled = rows.withColumn("label", F.expr("int(a > 0)"))
    network = torch.nn.Linear(4, 1)
    model = estimator(model=network, loss=torch.nn.BCEWithLogitsLoss(), epochs=5).fit(labelled)
    scored = model.transform(labelled)
    assert BinaryClassificationEvaluator().evaluate(scored) > 0.9
    row = scored.first()
    assert row.probability.toArray().sum() == pytest.approx(1)
    assert row.rawPrediction[0] == -row.rawPrediction[1]
    assert row.prediction == float(row.probability[1] > 0.5)


def test_several_labels_of_one_row(rows: DataFrame) -> None:
    labelled = rows.selectExpr("id", "features", "int(a > 0) as p", "int(b > 0) as q")
    model = estimator(
        model=Net(outputs=2), labelCol=["p", "q"], loss="bce", epochs=10, learningRate=0.1
    ).fit(labelled)
    labels = F.expr("filter(array(if(p = 1, 0D, null), if(q = 1, 1D, null)), x -> x is not null)")
    scored = model.transform(labelled).withColumn("labels", labels)
    evaluator = MultilabelClassificationEvaluator(labelCol="labels", metricName="microF1Measure")
    assert evaluator.evaluate(scored) > 0.8
    assert len(scored.first().probability) == 2


def test_several_tasks_and_the_labels_that_are_null(rows: DataFrame) -> None:
    labelled = rows.selectExpr("*", "int(a > 0) as clicked", "if(id % 4 = 0, b, null) as paid")
    model = estimator(
        model=Tasks,
        inputCols={"few": ["a", "b"], "many": ["b", "c", "d"]},
        labelCol={"click": "clicked", "price": "paid"},
        loss={"click": "bce", "price": "mse"},
    ).fit(labelled)
    scored = model.transform(rows)
    added = set(scored.columns) - set(rows.columns)
    assert added == {
        "click_prediction",
        "click_probability",
        "click_rawPrediction",
        "price_prediction",
    }
    events = read_events(Path(model.summary.run_dir) / "events.jsonl")
    (warning,) = (event.fields["text"] for event in events if event.kind == "warning")
    assert warning == (
        "the label is null in 48 of 64 rows of train ('paid'): these add nothing to the loss"
    )


def test_an_auto_encoder_learns_its_features_in_their_shape(rows: DataFrame) -> None:
    arrays = rows.selectExpr("id", "array(a, b, c, d) as pixels")
    model = estimator(
        model=Image, featuresCol="pixels", inputShape=[1, 2, 2], loss="mse", epochs=3
    ).fit(arrays)
    scored = model.transform(arrays)
    assert scored.schema["prediction"].dataType.simpleString() == "array<double>"
    assert len(scored.first().prediction) == 4


def test_sparse_vectors_stay_sparse(spark: SparkSession) -> None:
    data = [(n, Vectors.sparse(10, [n % 10], [2.0]), float(n % 10 > 4)) for n in range(40)]
    frame = spark.createDataFrame(data, ["id", "features", "label"])
    model = estimator(model=SparseLine, loss="bce", epochs=5, learningRate=0.2).fit(frame)
    assert column(model.transform(frame), "prediction").tolist() == column(frame, "label").tolist()


def test_ids_with_tables_on_servers(rows: DataFrame, tmp_path: Path) -> None:
    # A number is missing now and then, and the id is made of two texts.
    clicks = rows.selectExpr(
        "id",
        "if(id = 0, null, a) as a",
        "b",
        "string(id % 5) as shop",
        "string(id % 2) as day",
        "int(id % 5 < 2) as label",
    )
    first = estimator(
        model=Clicks,
        inputCols={"numbers": ["a", "b"], "item": "item"},
        loss="bce",
        fitParams=QUIET | {"fill": {"a": 0.0}, "crosses": {"item": ["shop", "day"]}},
        strategy=fb.ParameterServer(servers=2),
        tableOptimizer=fb.optim("adagrad", lr=0.5),
        epochs=5,
        numWorkers=2,
    )
    model = first.fit(clicks)
    assert BinaryClassificationEvaluator().evaluate(model.transform(clicks)) > 0.95
    model.save(str(tmp_path / "clicks"))
    assert list(tmp_path.glob("clicks/files/checkpoints/*/table-item-*"))
    loaded = TorchModel.load(str(tmp_path / "clicks"))
    expected = column(model.transform(clicks), "rawPrediction")
    assert (column(loaded.transform(clicks), "rawPrediction") == expected).all()
    # Training goes on from its rows and weights.
    more = first.copy({first.initialModel: loaded, first.learningRate: 1e-9, first.epochs: 1})
    again = more.setTableOptimizer(fb.optim("sgd", lr=1e-9)).fit(clicks)
    np.testing.assert_allclose(
        column(again.transform(clicks), "rawPrediction"), expected, atol=1e-5
    )


def test_a_grid_of_params_is_searched(rows: DataFrame, tmp_path: Path) -> None:
    stage = estimator(model=Net, loss="cross_entropy", epochs=2)
    grid = [
        {stage.learningRate: 1e-6, stage.modelParams: {"hidden": 2}},
        {stage.learningRate: 0.1, stage.modelParams: {"hidden": 5}},
    ]
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    found = CrossValidator(
        estimator=stage, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1
    ).fit(rows)
    assert found.avgMetrics[1] > found.avgMetrics[0]
    assert found.bestModel.torch().layers[0].out_features == 5
    assert found.bestModel.getLearningRate() == 0.1
    found.save(str(tmp_path / "found"))
    loaded = CrossValidatorModel.load(str(tmp_path / "found"))
    assert loaded.bestModel.getLearningRate() == 0.1
    assert loaded.getEstimator().getModel() is Net
    assert loaded.bestModel.transform(rows).count() == rows.count()


def notebook_class() -> type[torch.nn.Module]:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    Double.__module__ = "__main__"
    return Double


def test_a_network_of_a_notebook_is_saved_by_value(rows: DataFrame, tmp_path: Path) -> None:
    model = TorchModel.of(notebook_class()(), featuresCol="a", predictionCol="twice")
    expected = [2 * value for value in column(rows, "a").tolist()]
    assert column(model.transform(rows), "twice").tolist() == pytest.approx(expected)
    with pytest.raises(RuntimeError, match="has no summary"):
        _ = model.summary
    model.save(str(tmp_path / "model"))
    with pytest.warns(UserWarning, match="the model's code is in the saved model itself"):
        loaded = TorchModel.load(str(tmp_path / "model"))
    assert column(loaded.transform(rows), "twice").tolist() == pytest.approx(expected)


def test_a_pretrained_network_is_attached(rows: DataFrame, classifier: PipelineModel) -> None:
    network = Net().eval()
    x, _ = numbers()
    with torch.inference_mode():
        wanted = network(torch.tensor(x, dtype=torch.float32)).argmax(1).double().tolist()
    scored = TorchModel.of(network, loss="cross_entropy").transform(rows)
    assert column(scored, "prediction").tolist() == wanted
    assert scored.filter("id < 0").collect() == []
    # Columns meet parameters by name, where no column is called features.
    by_name = rows.selectExpr("id", "array(a, b, c, d) as x")
    attached = TorchModel.of(network, loss="cross_entropy")
    assert column(attached.transform(by_name), "prediction").tolist() == wanted
    # A run of Flambeau is as good.
    run = TorchModel.of(classifier.stages[1].summary.run_dir, featuresCol="features")
    assert run.getLoss() == "cross_entropy"


def test_an_estimator_is_saved_with_its_functions(tmp_path: Path) -> None:
    stage = estimator(
        model=Net(hidden=3),
        loss=torch.nn.CrossEntropyLoss(),
        strategy=fb.ParameterServer(servers=2),
        labelCol=None,
    )
    stage.save(str(tmp_path / "estimator"))
    loaded = TorchEstimator.load(str(tmp_path / "estimator"))
    assert loaded.getModel().layers[0].out_features == 3
    assert isinstance(loaded.getLoss(), torch.nn.CrossEntropyLoss)
    assert loaded.getStrategy() == {"kind": "parameter_server", "servers": 2}
    assert loaded.getLabelCol() is None
    assert loaded.isSet(loaded.labelCol)
    assert loaded.getEpochs() == 1


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({}, ConfigError, "model is not set"),
        ({"model": 3}, ModelError, "model is 3; give an nn.Module"),
        ({"model": Net(), "modelParams": {"hidden": 3}}, ModelError, "not for an nn.Module"),
        ({"model": "spark_toys:Nett"}, ModelError, "did you mean 'Net'"),
        ({"model": Net, "featuresCol": "feature"}, DataError, "there is no column 'feature'; the"),
        ({"model": Net, "inputCols": ["a", "z"]}, DataError, "there is no column 'z'"),
        ({"model": Net, "labelCol": "y"}, DataError, "there is no column 'y'"),
        ({"model": Net, "labelCol": None}, ConfigError, "needs labelCol; without one"),
        ({"model": Net, "earlyStoppingPatience": 2}, ConfigError, "set validationFraction"),
        ({"model": Net, "validationIndicatorCol": "v"}, DataError, "there is no column 'v'"),
        (
            {"model": Net, "validationIndicatorCol": "a", "validationFraction": 0.1},
            ConfigError,
            "not both",
        ),
        ({"model": Net, "optimizer": list}, ConfigError, "learningRate is for optimizers by name"),
        ({"model": Net, "strategy": {"kind": "x"}}, ConfigError, "'kind' must be one of"),
    ],
)
def test_mistakes_are_named(
    rows: DataFrame, params: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        estimator(**{"loss": "cross_entropy"} | params).fit(rows)


@pytest.mark.parametrize("param", ["labelCol", "weightCol"])
def test_text_for_numbers_is_an_error_before_anything_starts(rows: DataFrame, param: str) -> None:
    named = rows.withColumn("name", F.lit("cat"))
    with pytest.raises(DataError, match="column 'name' holds text, where numbers are needed"):
        estimator(model=Net, loss="cross_entropy", **{param: "name"}).fit(named)


def test_mistakes_of_a_model_are_named(
    rows: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    model = TorchModel.of(Net(), loss="cross_entropy")
    with pytest.raises(DataError, match="has a column 'prediction' already; drop it"):
        model.transform(rows.withColumn("prediction", F.lit(1.0)))
    with pytest.raises(DataError, match="the DataFrame has no rows"):
        TorchModel.of(Net()).transform(rows.filter("id < 0"))
    with pytest.raises(DataError, match="this TorchModel is empty"):
        TorchModel().transform(rows)
    with pytest.raises(ModelError, match="looks up rows in tables, which are in a run"):
        TorchModel.of(Clicks())
    wrong = TorchModel.of(Net(), inputShape=[3, 3])
    with pytest.raises(ModelError, match=r"inputShape=\[3, 3\] does not fit rows of 4 numbers"):
        wrong.transform(rows)
    narrow = TorchModel.of(torch.nn.Linear(9, 1))
    with pytest.raises(DataError, match=r"forward\(\) does not take the column 'features'"):
        narrow.transform(rows)
    path = tmp_path / "model"
    model.save(str(path))
    shutil.rmtree(path / "files")
    with pytest.raises(DataError, match="files does not exist"):
        TorchModel.load(str(path))


def test_files_go_through_hadoop_where_this_machine_has_no_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "folder" / "inside" / "file").write_text("text")
    place = f"file:{tmp_path}/there"  # not a path, and so for Hadoop
    persistence.put_folder(tmp_path / "folder", place, spark)
    found = persistence.get_folder(place, spark, "inside/file")
    assert found is not None
    assert tmp_path not in found.parents
    assert (found / "inside" / "file").read_text() == "text"
    assert persistence.get_folder(f"file:{tmp_path}/nowhere", spark, "x") is None


@pytest.fixture
def saved(rows: DataFrame, tmp_path: Path) -> list[float]:
    """The predictions of a pipeline that is in tmp_path/saved."""
    pipeline = PipelineModel([TorchModel.of(Net(), loss="cross_entropy")])
    pipeline.write().save(str(tmp_path / "saved"))
    return column(pipeline.transform(rows), "prediction").tolist()


def check_session(printed: str, saved: list[float]) -> None:
    found = json.loads(printed.splitlines()[-1])
    assert found["other"] == saved
    assert found["auc"] > 0.9
    assert found["spark_auc"] > 0.9  # Spark's own models can be used after ours
    assert found["same"]
    assert found["by_value"]


def test_a_new_session_of_connect(
    run_script: Callable[..., str], saved: list[float], tmp_path: Path
) -> None:
    printed = run_script("spark_ml.py", "--remote", "local[2]", tmp_path, connect=True)
    check_session(printed, saved)


def test_a_new_session_of_spark_35(
    run_script: Callable[..., str], saved: list[float], tmp_path: Path, spark_35: Path
) -> None:
    check_session(run_script("spark_ml.py", "local[2]", tmp_path, first=(spark_35,)), saved)


def test_vectors_come_straight_from_files(rows: DataFrame, tmp_path: Path) -> None:
    rows.write.parquet(str(tmp_path / "rows"))
    model = TorchModel.of(torch.nn.Linear(4, 1), loss="mse")
    scored = model.transform(rows.sparkSession.read.parquet(str(tmp_path / "rows")))
    expected = {row.id: row.prediction for row in model.transform(rows).collect()}
    assert {row.id: row.prediction for row in scored.collect()} == expected


def test_the_guide_does_what_it_says(rows: DataFrame, tmp_path: Path) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"torch": torch, "rows": rows.drop("features")}
    for block in blocks:
        exec(block.replace('"models/', f'"{tmp_path}/'), names)
    assert {"prediction", "probability", "rawPrediction"} <= set(names["scored"].columns)
    assert names["again"].stages[-1].summary.report["status"] == "finished"
