"""What server and clients have in common: the estimator, as it was tuned in one place."""

from skfedhip import FedHiPClassifier

classifier = FedHiPClassifier(alpha=5.0, beta=1.0)
