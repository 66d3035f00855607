"""Claim: words and meaning together are at most a point worse than the better one of them, on every set of real texts.

Texts that most machines have: newsgroup posts without headers and quotes, and their subjects (20 groups); docstrings of
eight installed libraries, whose class is the library, and their first lines; docstrings of Python's own modules; and,
where they are found, one-line and long descriptions of Debian packages (11 sections), also in other languages; manual
pages (6 sections), also in other languages (3); and paragraphs of licenses (5 families). Names that give a class away
are removed. Printed: accuracy on the unlabeled rows with some labels per class, mean over draws. "regression" is a
logistic regression on the model's vectors, "setfit" one on the vectors of the same network after SetFit's fine-tuning:
one epoch over 10 pairs of one class and 10 of two for each label, with the cosine of their vectors drawn to 1 and 0.
The share of meaning was chosen on Debian's one-line descriptions, subjects and docstrings.

    SOBGNN_DATA=... python -m benchmarks.tables_text MODEL [ROWS] [LABELS] [DRAWS] [SET ...]

MODEL is a folder or a name, as for --text-model. Debian's Translation-LANGUAGE files are read from SOBGNN_TRANSLATIONS.
SETFIT is the number of tokens of a text up to which it is fine-tuned; without it, SetFit is left out: it takes minutes.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import inspect
import lzma
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from sobgnn import SobolevClassifier, TableEncoder
from sobgnn.datasets import locate
from sobgnn.datasets.news import read_posts, strip_post
from sobgnn.tables.models import find_text_model

LIBRARIES = {
    "numpy": ("", ".linalg", ".random", ".fft", ".ma", ".polynomial"),
    "scipy": (".stats", ".signal", ".sparse", ".optimize", ".special", ".spatial", ".ndimage", ".linalg"),
    "sklearn": (".cluster", ".decomposition", ".ensemble", ".linear_model", ".metrics", ".neighbors", ".svm", ".tree"),
    "torch": ("", ".nn", ".nn.functional", ".optim", ".distributions", ".linalg"),
    "polars": ("",),
    "networkx": ("",),
    "matplotlib": (".pyplot", ".axes", ".patches", ".colors"),
    "pandas": ("", ".io.api", ".api.types"),
}
STANDARD = ("asyncio", "email", "xml", "unittest", "logging", "http", "urllib", "multiprocessing", "ctypes", "tkinter")
SECTIONS = ("games", "fonts", "science", "net", "sound", "web", "graphics", "editors", "database", "admin", "mail")
LEAST = 25  # texts of a class


def posts():
    read = read_posts(locate("20news").path.read_bytes())
    bodies, subjects = [], []
    for text, y in zip(read.texts, read.y, strict=True):
        body = strip_post(text)[:2500]
        subject = re.search(r"^Subject:\s*(?:Re:\s*)*(.*)$", text, re.M)
        bodies += [(body, y)] if len(body) > 40 else []
        subjects += [(subject.group(1), y)] if subject and len(subject.group(1)) > 3 else []
    return {"posts": bodies, "subjects": subjects}


def of_packages(packages):
    """Docstrings of what modules hold; their class is the package."""
    warnings.simplefilter("ignore")  # of deprecated things that are looked at
    for package, modules in packages.items():
        for name in modules:
            try:
                module = importlib.import_module(package + name)
            except ImportError:
                continue
            things = [getattr(module, each) for each in dir(module) if not each.startswith("_")]
            classes = [t for t in things if inspect.isclass(t) and str(t.__module__).startswith(package)]
            things += [getattr(c, each, None) for c in classes for each in dir(c) if not each.startswith("_")]
            for thing in things:
                said = inspect.getdoc(thing) if callable(thing) else None
                if said and len(said) > 40:
                    yield re.sub(rf"\b{package}\b", "", said[:2000], flags=re.IGNORECASE).strip(), package


def docstrings():
    found = list(of_packages(LIBRARIES))
    inside = {}
    for name in STANDARD:
        own = pkgutil.iter_modules(importlib.import_module(name).__path__)
        inside[name] = ("", *(f".{module.name}" for module in own if not module.name.startswith("_")))
    first = [(said.splitlines()[0], package) for said, package in found if said]
    return {"docstrings": found, "first lines": first, "standard library": list(of_packages(inside))}


def debian():
    if not shutil.which("apt-cache"):
        return {}
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace", check=True)
    section, sets = {}, {"debian": []}
    for entry in listed.stdout.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Section|Description(?:-en)?): (.+)$", entry, re.M))
        if fields.get("Section") in SECTIONS:
            section[fields["Package"]] = fields["Section"]
            sets["debian"] += [(said, fields["Section"]) for name, said in fields.items() if name.startswith("D")]
    for file in sorted(Path(os.environ.get("SOBGNN_TRANSLATIONS", "/nowhere")).glob("Translation-*")):
        language = file.stem.removeprefix("Translation-")
        read = bz2.open if file.suffix == ".bz2" else lzma.open
        rows = sets.setdefault("debian, long" if language == "en" else f"debian {language}", [])
        with read(file, "rt", errors="replace") as opened:
            entries = opened.read().split("\n\n")
        for entry in entries:
            found = re.search(r"^Package: (\S+)\n(?s:.*)^Description-\w+: (.+)\n((?: .*\n?)*)", entry, re.M)
            if found and found.group(1) in section:
                said = re.sub(r"\n ?\.?", " ", found.group(3)).strip() if language == "en" else found.group(2)
                rows.append((said, section[found.group(1)]))
    return sets


def manual(folder, sections):
    rows = []
    for section in sections:
        files = sorted(Path(folder, f"man{section}").glob("*.gz"))
        for file in files[:: max(1, len(files) // 250)]:
            with gzip.open(file, "rt", errors="replace") as opened:
                text = opened.read()
            text = re.sub(r"(?m)^'.*$|^\.\\\".*$|^\.(?:TH|SH|SS|de|ds|if|ie|el|so).*$|^\.\w+ ?", "", text)
            text = " ".join(re.sub(r"\\f.|\\-|\\&|\\\(..|\\[a-z]", "", text).split())
            rows += [(text[300:2000], section)] if len(text) > 600 else []
    return rows


def licenses():
    rows = []
    for file in sorted(Path("/usr/share/common-licenses").glob("*-*")):
        for part in re.split(r"\n\s*\n", file.read_text(errors="replace")) if not file.is_symlink() else []:
            said = re.sub(r"(?i)\b(GNU|GPL|LGPL|GFDL|Apache|Mozilla|Artistic|Creative Commons|CC0|affero)\b", "", part)
            rows += [(" ".join(said.split()), file.name.split("-")[0])] if len(said) > 80 else []
    return rows


def sets(rows):
    """Texts and class numbers of each set: some rows in random order, of classes that are not rare in them."""
    found = {**posts(), **docstrings(), **debian(), "licenses": licenses()}
    found |= {"manual": manual("/usr/share/man", "123578")}
    found |= {f"manual {each}": manual(f"/usr/share/man/{each}", "158") for each in ("de", "fr")}
    for name, pairs in found.items():
        pairs = list(dict(pairs).items())
        chosen = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))[:rows]]
        often = Counter(each for _, each in chosen)
        chosen = [(text, each) for text, each in chosen if often[each] >= LEAST]
        if len({each for _, each in chosen}) > 1:
            texts, classes = zip(*chosen, strict=True)
            yield name, list(texts), np.unique(classes, return_inverse=True)[1]


def drawn(y, labels, seed):
    generator, given = np.random.default_rng(seed), np.full(len(y), -1)
    for code in np.unique(y):
        own = generator.permutation(np.flatnonzero(y == code))
        given[own[: min(labels, len(own) // 2)]] = code
    return given


def setfit(folder, texts, y, given, tokens):
    """Accuracy of SetFit's recipe: contrastive fine-tuning on pairs of labeled texts, then a logistic regression."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.manual_seed(0)
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).train()

    def vectors(texts):
        batch = tokenizer(texts, padding=True, truncation=True, max_length=tokens, return_tensors="pt")
        mask = batch["attention_mask"][:, :, None]
        pooled = (network(**batch).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
        return torch.nn.functional.normalize(pooled, dim=1)

    generator, known = np.random.default_rng(0), np.flatnonzero(given >= 0)
    pairs = [
        (i, generator.choice(known[(y[known] == y[i]) == same]), float(same))
        for i in np.repeat(known, 10)
        for same in (True, False)
    ]
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-5)
    for batch in np.array_split(generator.permutation(len(pairs)), max(1, len(pairs) // 16)):
        one, two, wanted = zip(*(pairs[i] for i in batch), strict=True)
        cosine = (vectors([texts[i] for i in one]) * vectors([texts[i] for i in two])).sum(dim=1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(cosine, torch.tensor(wanted)).backward()
        optimizer.step()
    network.eval()
    with torch.inference_mode():
        X = np.concatenate([vectors(texts[at : at + 32]).numpy() for at in range(0, len(texts), 32)])
    hidden = given < 0
    return LogisticRegression(max_iter=2000).fit(X[~hidden], y[~hidden]).score(X[hidden], y[hidden])


def main():
    model = find_text_model(sys.argv[1])
    usual = ["700", "10", "2"]
    rows, labels, draws = (int(word) for word in [*sys.argv[2:5], *usual[len(sys.argv[2:5]) :]])
    wanted, worst = sys.argv[5:], []
    for name, texts, y in sets(rows):
        if wanted and name not in wanted:
            continue
        vectors = model.encode(texts)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        forms = {
            "words": TableEncoder(text=["text"], text_model="none").fit_transform({"text": texts}),
            "meaning": vectors - vectors.mean(axis=0),
            "both": TableEncoder(text=["text"], text_model=model.folder).fit_transform({"text": texts}),
        }
        tokens = int(os.environ.get("SETFIT", "0"))
        right = {form: [] for form in (*forms, "regression", *(["setfit"] if tokens else []))}
        for seed in range(draws):
            given = drawn(y, labels, seed)
            hidden = given < 0
            for form, X in forms.items():
                fitted = SobolevClassifier(scale="unit", random_state=0).fit(X, given)
                right[form].append((fitted.transduction_ == y)[hidden].mean())
            regression = LogisticRegression(C=10, max_iter=2000).fit(vectors[~hidden], y[~hidden])
            right["regression"].append(regression.score(vectors[hidden], y[hidden]))
            if tokens:
                right["setfit"].append(setfit(model.folder, texts, y, given, tokens))
        mean = {form: 100 * float(np.mean(shares)) for form, shares in right.items()}
        worst.append(mean["both"] - max(mean["words"], mean["meaning"]))
        line = "".join(f"  {form} {value:5.1f}" for form, value in mean.items())
        print(f"{name:18} {len(np.unique(y)):3} classes {len(y):5} texts{line}  {worst[-1]:+.1f}", flush=True)
    print(f"both against the better one: mean {np.mean(worst):+.1f}, worst {min(worst):+.1f}", end=": ")
    print("holds" if min(worst) > -1 else "fails")


if __name__ == "__main__":
    main()
