"""PCA and kernel PCA as estimators of scikit-learn."""
