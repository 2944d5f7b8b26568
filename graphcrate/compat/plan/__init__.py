"""Plans: a lock becomes the ordered steps from which every form of an image is made. Pure.

Lock ──planning──▶ Plan (base, layers of wheels, files, environment)
         ▲
programs ┘  examples, suites and the doctor, which ship in every image
"""
