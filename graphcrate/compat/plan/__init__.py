"""Plans: a lock becomes the ordered steps from which every form of an image is made. Pure.

Lock ──planning──▶ Plan (base, layers of wheels, files, environment)
         ▲
programs ┘  examples, suites and the doctor, which ship in every image

`layering` says which wheels share a layer, `compile_steps` what is compiled, `base_images` what an engine pulls for a
base, `image_config` has the virtual environment, variables and labels, `base_lines` sentences on a base.
"""
