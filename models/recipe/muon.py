"""The update of Muon: what a momentum becomes before it is subtracted from a matrix."""


def orthogonalise(g, steps=5):
    """Newton-Schulz towards U V^T of the singular value decomposition, in bfloat16."""
    x = g.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T.contiguous() if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.T if tall else x).float()
