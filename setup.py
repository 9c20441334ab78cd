"""Installation.  ``make test`` and ``make quickstart`` do all of it; see README.md."""

import zlib
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).resolve().parent
VERSION = next(
    line.split('"')[1]
    for line in (HERE / "fairseq_docmt" / "__init__.py").read_text().splitlines()
    if line.startswith("__version__")
)

# Loaded by ctypes, not imported.  Without a compiler the installation goes on without it.
KERNELS = "fairseq_docmt/ops/step_kernels.cpp"
step_kernels = Extension(
    "fairseq_docmt.ops._step_kernels",
    [KERNELS],
    define_macros=[("SOURCE_CHECKSUM", f"{zlib.crc32((HERE / KERNELS).read_bytes())}u")],
    extra_compile_args=["-std=c++17", "-O3", "-fopenmp", "-Wno-psabi"],
    extra_link_args=["-fopenmp"],
    optional=True,
)

setup(
    name="fairseq-docmt",
    version=VERSION,
    description="Document-level neural machine translation as a fairseq plugin",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_docmt", "fairseq_docmt.*"]),
    package_data={
        "fairseq_docmt.scoring.report": ["*.html", "*.js"],
        "fairseq_docmt.ops": ["*.cpp"],
    },
    ext_modules=[step_kernels],
    python_requires=">=3.8",
    install_requires=[
        # fairseq's main branch kept installable; the official release stops at Python 3.10
        "fairseq-fixed==0.12.3.1",
        "torch",
        "sacrebleu>=2",
        "scipy",
        "subword-nmt",
        "sentencepiece",
        "jieba",
        "spacy; python_version >= '3.10'",
        # pip would choose later sources that do not build there
        "spacy<3.8; python_version < '3.10'",
        "jinja2",
        "sacremoses",
        "lxml",
        "matplotlib",
        "tabulate",
        "tqdm",
        "filelock",
    ],
    entry_points={"console_scripts": ["fairseq-docmt = fairseq_docmt.command_line:main"]},
    extras_require={
        # deployment: fairseq-docmt export-ctranslate2
        "ctranslate2": ["ctranslate2>=4"],
        "dev": [
            "pytest",
            "pytest-xdist>=3.2",
            "ruff",
            "codespell>=2.4.1",
            "nltk",
            "mweralign>=1.4.1; python_version >= '3.10'",
            "sentence-splitter>=1.4",
            "ctranslate2>=4",
        ],
        "meteor": ["nltk"],
        # Licensed under the GPL; only imported for --align.
        "align": ["mweralign>=1.4.1"],
        "ctxpro": ["sentence-splitter>=1.4"],
    },
)
