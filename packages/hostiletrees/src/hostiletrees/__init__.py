"""Trees of folders that others' code wrote, however deep: walked and removed by loops, and no link is followed.

Those of Python 3.11's standard library (os.walk, Path.rglob, shutil.rmtree, shutil.copytree) call themselves for each
folder, and end with RecursionError some 1,000 deep, which a program makes in a second.
"""
