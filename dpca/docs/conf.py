"""The API reference, made from docstrings: `make docs`."""

from dpca.version import __version__

project, author, version = "dpca", "the dpca authors", __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc, html_theme = "index", "alabaster"
html_theme_options = {
    "description": "PCA of data that are larger than memory",
    "page_width": "70em",
    "fixed_sidebar": True,
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them already
autodoc_inherit_docstrings = False  # of scikit-learn's base classes, whose references are not here
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False
nitpicky = False
