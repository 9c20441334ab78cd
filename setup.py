"""Installation.  ``make test`` and ``make quickstart`` do all of it; see README.md."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
VERSION = next(
    line.split('"')[1]
    for line in (HERE / "fairseq_docmt" / "__init__.py").read_text().splitlines()
    if line.startswith("__version__")
)

setup(
    name="fairseq-docmt",
    version=VERSION,
    description="Document-level neural machine translation as a fairseq plugin",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_docmt", "fairseq_docmt.*"]),
    package_data={"fairseq_docmt.scoring": ["*.html"]},
    python_requires=">=3.8",
    install_requires=[
        # The official release does not import on Python 3.11; the fork is its maintained successor.
        "fairseq-fixed==0.12.3.1; python_version >= '3.11'",
        "fairseq==0.12.2; python_version < '3.11'",
        "torch",
        "sacrebleu>=2",
        "scipy",
        "subword-nmt",
        "jieba",
        "spacy",
        "jinja2",
        "sacremoses",
        "matplotlib",
        "tabulate",
        "tqdm",
    ],
    extras_require={"dev": ["pytest", "pytest-xdist", "ruff", "nltk"], "meteor": ["nltk"]},
)
