"""Distributions of lengths and times from the few quantiles and the mean that sources print.

Between two known quantiles ln x is linear in the normal score z of the probability, so a mean and a median alone are a lognormal.
Beyond the last known quantile the slope is set such that the stated mean comes out. With ``ln x = a + b z`` over ``z1..z2``

    integral of x dPhi = exp(a + b*b/2) * (Phi(z2 - b) - Phi(z1 - b))

so every mean below is in closed form.
"""
