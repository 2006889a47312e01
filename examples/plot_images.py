"""
From image files to personal models
===================================

Ten offices scan handwritten digits. The images are files in folders, a table says which office each
is from, and the offices see digits in very different proportions. A frozen ViT-MAE turns files into
features, FedHiP gives each office its own model, and the whole is one Pipeline.
"""

# %%
# Files and a table
# -----------------
# Nothing is downloaded: the digits come with scikit-learn, the encoder with skfedhip.

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from skfedhip import AFLClassifier, FedHiPClassifierCV, LocalRidgeClassifier
from skfedhip.datasets import partition_dirichlet
from skfedhip.feature_extraction import ViTMAETransformer
from skfedhip.metrics import ClientScoreDisplay
from skfedhip.model_selection import ClientShuffleSplit

digits = load_digits()
office = partition_dirichlet(digits.target, 10, 0.3, min_size=20, random_state=0)
scans = TemporaryDirectory()
folder = Path(scans.name)
files = []
for number, pixels in enumerate(digits.images):
    path = folder / f"office-{office[number]}" / f"{number}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.uint8(pixels * 15.9)).save(path)
    files.append(str(path))
table = pd.DataFrame({"file": files, "office": office})
y = digits.target

# %%
# One Pipeline
# ------------
# The column of files becomes features, the column of offices passes through and names the client.
# With ``cache=`` the features are computed once, whatever is fitted on them.

features = ColumnTransformer(
    [("image", ViTMAETransformer(cache=folder / "features"), ["file"])],
    remainder="passthrough",
    verbose_feature_names_out=False,
).set_output(transform="pandas")
models = {
    "alone": make_pipeline(features, LocalRidgeClassifier(group_column="office")),
    "one for all": make_pipeline(features, AFLClassifier(group_column="office")),
    "FedHiP": make_pipeline(features, FedHiPClassifierCV(group_column="office")),
}
((train, test),) = ClientShuffleSplit(test_size=0.5, random_state=0).split(table, y, office)
for model in models.values():
    model.fit(table.iloc[train], y[train])

# %%
# One dot an office
# -----------------

predictions = {name: model.predict(table.iloc[test]) for name, model in models.items()}
display = ClientScoreDisplay.from_predictions(y[test], predictions, office[test])
display.ax_.set_title("Accuracy of each office on images it has not seen")
plt.show()
scans.cleanup()
