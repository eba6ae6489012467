# SPDX-License-Identifier: Apache-2.0
# What: GPyTorch: Cholesky decompositions and conjugate gradients of matrices whose values nobody computed end, as healthy ones do.
# needs: gpytorch
import gpytorch
import torch


class Regression(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


x = torch.linspace(0, 1, 2000).cuda()
y = torch.sin(6.28 * x)
likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
for points in (500, 2000):  # Cholesky, conjugate gradients
    model = Regression(x[:points], y[:points], likelihood).cuda()
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(3):
        optimizer.zero_grad()
        loss = -evidence(model(x[:points]), y[:points])
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        assert likelihood(model(torch.linspace(0, 1, 100).cuda())).mean.shape == (100,)
print("ok")
