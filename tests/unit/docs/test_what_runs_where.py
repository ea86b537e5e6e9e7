"""README's table of clusters, against those that the conformance suite runs on."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_readme_names_the_clusters_of_the_suite() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| \*\*cluster\*\* \|(.*?)\|", readme, re.MULTILINE)
    suite = (ROOT / "tests/clusters/conformance/conftest.py").read_text(encoding="utf-8")
    (params,) = re.findall(r"params=\[(.*?)\]\)\ndef place", suite)
    functions = re.findall(r"^def (\w+)\(.*?(?=^@|\Z)", suite, re.MULTILINE | re.DOTALL)
    bodies = re.findall(r"^def \w+\(.*?(?=^@|\Z)", suite, re.MULTILINE | re.DOTALL)
    names = [re.search(r'Place\("(\w+)"', body) for body in bodies]
    fixtures = {name: found[1] for name, found in zip(functions, names, strict=True) if found}
    tested = {fixtures[name] for name in re.findall(r'"(\w+)"', params)}
    assert set(re.findall(r"`(\w+)`", row)) == tested
