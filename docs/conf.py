"""Sphinx: the pages, the API from its docstrings, and the gallery of examples/."""

import inspect

from skfedhip import __version__

project = "skfedhip"
author = "The skfedhip developers"
copyright = "2026, The skfedhip developers"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "auto_examples/**/*.ipynb"]
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"skfedhip {version}"
html_show_sourcelink = False
html_theme_options = {"header_links_before_dropdown": 8, "secondary_sidebar_items": ["page-toc"]}
html_sidebars = {"*": []}  # pages of the top have no pages below them; "*" takes in no folders

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say what the types are
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "plot_",
    "abort_on_example_error": True,
    "write_computation_times": False,
    "download_all_examples": False,
}


def skip_what_is_not_ours(app, what, name, obj, skip, options):
    """Leave members that scikit-learn and dataclasses bring along to their own documentation."""
    function = obj.fget if isinstance(obj, property) else inspect.unwrap(obj)
    ours = str(getattr(function, "__module__", "")).startswith("skfedhip")
    return skip or not ours


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_what_is_not_ours)
