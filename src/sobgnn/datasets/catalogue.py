"""The catalog of data sets: files, their hashes, sources."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One data set.

    Attributes:
        file: An npz, or posts as gzipped JSON lines; ``None`` if scikit-learn ships the data.
        sha256: That of the file.
        description: One line.
        licence: As stated by the source.
        standardize: Whether the columns have units of their own, so that the protocol standardizes them.
    """

    file: str | None
    sha256: str
    description: str
    licence: str = "none stated"
    standardize: bool = False


CATALOGUE: dict[str, Entry] = {
    "isolet": Entry(
        "isolet.npz",
        "6dedebeede2dcce9bba72df11389f10d345ded4d932478c15b6e65daf1d3dba1",
        "Spoken letters, 617 acoustic features, 26 classes (Fanty & Cole 1990, UCI ISOLET)",
        "CC BY 4.0 (UCI ML Repository)",
        standardize=True,
    ),
    "har": Entry(
        "ucihar.npz",
        "4f6ed18ce032651bc93cc2629dcf0920d5e5e9af7725afb1818a3e4211cc38b5",
        "Smartphone activities, 561 features, 6 classes, 30 subjects (Anguita et al. 2013, UCI HAR v1.0)",
        "CC BY 4.0 (UCI ML Repository); the archive's README forbids commercial use",
        standardize=True,
    ),
    "cancer": Entry(
        "kather_texture.npz",
        "b20b92d4e1704bd9a2d0dcead9197606c6054fa188afa9a4283529a2c8a7a9a4",
        "Histology tiles, 80 texture features, 8 classes (Kather et al. 2016, doi:10.5281/zenodo.53169)",
        "CC BY 4.0 (tiles), MIT (features)",
        standardize=True,
    ),
    "cancer-binary": Entry(
        "kather_texture.npz",
        "b20b92d4e1704bd9a2d0dcead9197606c6054fa188afa9a4283529a2c8a7a9a4",
        "The tiles of cancer: tumor against the rest (Kather et al. 2016, doi:10.5281/zenodo.53169)",
        "CC BY 4.0 (tiles), MIT (features)",
        standardize=True,
    ),
    "20news": Entry(
        "20news.jsonl.gz",
        "435364c928076def59e98e0f556855282313685f573ba1232cc83c746fa9569a",
        "Newsgroup posts, full text, TF-IDF and SVD to 256 features, 20 classes (Lang 1995, bydate)",
        "none stated by the collector; CC BY 4.0 (UCI mirror)",
    ),
    "20news-stripped": Entry(
        "20news.jsonl.gz",
        "435364c928076def59e98e0f556855282313685f573ba1232cc83c746fa9569a",
        "The posts of 20news without headers, footers and quotes",
        "none stated by the collector; CC BY 4.0 (UCI mirror)",
    ),
    "mnist": Entry(
        "mnist.npz",
        "8e280be4619b0f149504b5b8304f15932c2126df0a7d523b3b259f3a0103043b",
        "Handwritten digits, 28 × 28 gray values 0-255, 10 classes (LeCun, Cortes, Burges)",
        "CC BY-SA 3.0, as commonly given",
    ),
    "digits": Entry(
        None,
        "",
        "Handwritten digits, 8 × 8 gray values 0-16, 10 classes (shipped with scikit-learn)",
        "CC BY 4.0 (UCI ML Repository)",
        standardize=True,
    ),
    "cora": Entry(
        "planetoid_cora.npz",
        "fc55339faec2cecc87e9ec02319a51574aab5875b5d4ff3957bdd449d523d2d2",
        "Machine-learning papers and citations, 7 classes (Sen et al. 2008; Yang et al. 2016)",
        "MIT (repository); none stated for the data",
    ),
    "citeseer": Entry(
        "planetoid_citeseer.npz",
        "441094bbd2145f2811c32bef4f3240e62ca8a19b3ba22fb1e29c7d0b37073282",
        "Computer-science papers and citations, 6 classes (Sen et al. 2008; Yang et al. 2016)",
        "MIT (repository); none stated for the data",
    ),
    "pubmed": Entry(
        "planetoid_pubmed.npz",
        "4b9cee58137b757a52ef2e31d197e94f4a457644f1fd2b2a6642b1350bc3142c",
        "Diabetes papers and citations, 3 classes (Namata et al. 2012; Yang et al. 2016)",
        "MIT (repository); none stated for the data",
    ),
    "cornell": Entry(
        "geomgcn_cornell.npz",
        "8163bbaedf366d44a501f06ab26c50c9c0211e60d9be456fb89b208c360745c4",
        "Web pages of Cornell, corrected in 2022, 5 classes (WebKB; Pei et al. 2020)",
    ),
    "cornell-2020": Entry(
        "geomgcn_cornell_2020.npz",
        "fbb5e562cbf56355db6ca1cd695bfab6e1f8daf74c29ee315ab30ec534d5c748",
        "Cornell before the correction: its features and labels are those of texas",
    ),
    "texas": Entry(
        "geomgcn_texas.npz",
        "408b144dac72642d55fe97fb93374c878ff9d696209c34a6e008f0c02eb584c5",
        "Web pages of Texas, 5 classes (WebKB; Pei et al. 2020)",
    ),
    "wisconsin": Entry(
        "geomgcn_wisconsin.npz",
        "8a983a4b9de807d7592d4027fd51fc558e4ade3137772d2a41e39aff5050a178",
        "Web pages of Wisconsin, 5 classes (WebKB; Pei et al. 2020)",
    ),
    "chameleon": Entry(
        "geomgcn_chameleon.npz",
        "6a94c32862928272642c7845c1e03bc7a796bcf3d74c1135308e93d18ba9adb4",
        "Wikipedia pages on chameleons, 5 classes (Rozemberczki et al. 2021; Pei et al. 2020)",
    ),
    "squirrel": Entry(
        "geomgcn_squirrel.npz",
        "74b9ac810095558bfdadaffd6b33d593774ddb2bc1b962d77cef134ebc8a197e",
        "Wikipedia pages on squirrels, 5 classes (Rozemberczki et al. 2021; Pei et al. 2020)",
    ),
    "actor": Entry(
        "geomgcn_actor.npz",
        "e69797d61339f2171902cc49560e85d18c64160d51b5edc8dda273e731f4adfc",
        "Actors who share a Wikipedia page, 5 classes (Tang et al. 2009; Pei et al. 2020)",
    ),
    "amazon-photo": Entry(
        "amazon_photo.npz",
        "e0c2a1d0bbcbebc8ad9d528411bee23b1b5d5020b384b2abeba095e3b232dbbf",
        "Photo products bought together, 8 classes (McAuley et al. 2015; Shchur et al. 2018)",
        "MIT (repository); none stated for the data",
    ),
    "amazon-computers": Entry(
        "amazon_computers.npz",
        "558f9123b213e025b79781b0296ba5990d04c17b49dba35d33301b5287e8c46e",
        "Computer products bought together, 10 classes (McAuley et al. 2015; Shchur et al. 2018)",
        "MIT (repository); none stated for the data",
    ),
    "coauthor-cs": Entry(
        "coauthor_cs.npz",
        "91fc8814f18c5998e1405844b2225a48a24486469bed122d0da177ee55605313",
        "Computer scientists who wrote together, 15 classes (Shchur et al. 2018)",
        "MIT (repository); none stated for the data",
    ),
}

# sha256 of the gray values as bytes, then the labels as little-endian int64: what scikit-learn must return.
CONTENT = {
    "digits": "65e5b4619795efb40c1082f4c350c049e4ad552200d369b6ae99e21eef5e72c5",
    "mnist": "b3fe36794a3a345d09632e9d79f122d61ca91a07e5a22f8536973655bacf2a78",
}
