# SPDX-License-Identifier: Apache-2.0
# What: Stable-Baselines3: PPO, DQN and SAC play with actions that a small network on the GPU chooses.
# needs: stable-baselines3
import warnings

from stable_baselines3 import DQN, PPO, SAC

warnings.simplefilter("ignore")
player = PPO("MlpPolicy", "CartPole-v1", device="cuda", n_steps=128)
player.learn(256)
assert player.num_timesteps == 256
player = DQN("MlpPolicy", "CartPole-v1", device="cuda", learning_starts=50, buffer_size=1000)
player.learn(200)
assert player.num_timesteps == 200
player = SAC("MlpPolicy", "Pendulum-v1", device="cuda", learning_starts=50, buffer_size=1000)
player.learn(120)
assert player.num_timesteps == 120
print("ok")
