"""Dovetail and its peers on the same weights: one module for each engine, and what they share.

An engine's module has
  VARIANTS   dict of variant -> what it is
  VENV       which Python runs it: "project" (build/venv) or a folder of build/peers that `run.py --install` fills
  prepare(variant, model, scheme, folder, work)   writes the engine's program into `folder`; raises NotMeasured with a reason
  command(variant, model, scheme, folder, work, threads, out)   the process that runs `work`, or None for the worker of this package
  session(variant, model, scheme, folder, threads)   for the worker: an object of host.Session's kind
Top levels import nothing heavy, since run.py imports all of them.
"""
