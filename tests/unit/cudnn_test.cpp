// SPDX-License-Identifier: Apache-2.0
// cuDNN's stand-in: descriptors, and sizes of recurrent networks.
#include <utility>
#include <vector>

#include "tests/unit/libraries_fixture.h"

namespace gpumem::libraries_test {
namespace {

TEST(Cudnn, TensorDescriptorsKeepDimensionsAndStrides) {
  void *tensor = nullptr;
  ASSERT_EQ(call("cudnnCreateTensorDescriptor", &tensor), 0);
  int dims[4] = {2, 3, 4, 5}, strides[4] = {60, 1, 15, 3}, type = -1, count = 0, got_dims[4] = {}, got_strides[4] = {};
  EXPECT_EQ(call("cudnnSetTensorNdDescriptor", tensor, 2, 4, static_cast<const int *>(dims), static_cast<const int *>(strides)), 0);
  EXPECT_EQ(call("cudnnGetTensorNdDescriptor", tensor, 4, &type, &count, got_dims, got_strides), 0);
  EXPECT_EQ(type, 2);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(memcmp(dims, got_dims, sizeof dims), 0);
  EXPECT_EQ(memcmp(strides, got_strides, sizeof strides), 0);
  size_t bytes = 0;
  EXPECT_EQ(call("cudnnGetTensorSizeInBytes", tensor, &bytes), 0);
  EXPECT_EQ(bytes, 240u);  // 120 halves
  EXPECT_EQ(call("cudnnGetFilterNdDescriptor", tensor, 4, &type, &count, &count, got_dims), 2000) << "a tensor is no filter";
  EXPECT_EQ(call("cudnnDestroyTensorDescriptor", tensor), 0);
}

TEST(Cudnn, ConvolutionOutputFollowsTheDocumentedFormula) {
  void *convolution = nullptr, *x = nullptr, *w = nullptr;
  ASSERT_EQ(call("cudnnCreateConvolutionDescriptor", &convolution), 0);
  ASSERT_EQ(call("cudnnCreateTensorDescriptor", &x), 0);
  ASSERT_EQ(call("cudnnCreateFilterDescriptor", &w), 0);
  EXPECT_EQ(call("cudnnSetConvolution2dDescriptor", convolution, 3, 3, 2, 2, 1, 1, 1, 0), 0);
  EXPECT_EQ(call("cudnnSetTensor4dDescriptor", x, 0, 0, 8, 3, 224, 224), 0);
  EXPECT_EQ(call("cudnnSetFilter4dDescriptor", w, 0, 0, 64, 3, 7, 7), 0);
  int n = 0, c = 0, h = 0, width = 0, groups = 0;
  EXPECT_EQ(call("cudnnGetConvolution2dForwardOutputDim", convolution, x, w, &n, &c, &h, &width), 0);
  EXPECT_EQ((std::vector<int>{n, c, h, width}), (std::vector<int>{8, 64, 112, 112}));
  EXPECT_EQ(call("cudnnGetConvolutionGroupCount", convolution, &groups), 0);
  EXPECT_EQ(groups, 1);
}

// PyTorch takes the gates' matrices of one kind as one slice: they must follow each other, and all parts must fill the buffer.
void expect_layout(Rnn &rnn, int gates, int pseudo_layers, bool projection, long expected_elements) {
  std::map<long, long> parts;
  for (int layer = 0; layer < pseudo_layers; layer++)
    for (bool matrix : {true, false}) {
      long next = -1;
      for (int id = 0; id < 2 * gates; id++) {
        auto [offset, elements] = rnn.part(layer, id, matrix);
        ASSERT_GE(offset, 0) << layer << " " << id;
        if (id % gates != 0) {
          EXPECT_EQ(offset, next) << "layer " << layer << " id " << id;
        }
        next = offset + elements;
        EXPECT_TRUE(parts.emplace(offset, elements).second);
      }
      if (matrix && projection) {
        auto [offset, elements] = rnn.part(layer, 2 * gates, true);
        EXPECT_TRUE(parts.emplace(offset, elements).second);
      }
    }
  long end = 0;
  for (auto [offset, elements] : parts) {
    EXPECT_EQ(offset, end);
    end = offset + elements;
  }
  EXPECT_EQ(end, expected_elements);
  EXPECT_EQ(rnn.weight_bytes(), static_cast<size_t>(expected_elements) * 4);
}

TEST(CudnnRnn, WeightsOfAnLstmFillTheBufferInOrder) {
  Rnn lstm(2, 0, 10, 20, 0, 2);
  expect_layout(lstm, 4, 2, false, 4 * 20 * (10 + 20) + 4 * 20 * (20 + 20) + 2 * 8 * 20);
}
TEST(CudnnRnn, WeightsOfABidirectionalGruFillTheBufferInOrder) {
  Rnn gru(3, 1, 10, 20, 0, 2);
  expect_layout(gru, 3, 4, false, 2 * (3 * 20 * (10 + 20)) + 2 * (3 * 20 * (40 + 20)) + 4 * 6 * 20);
}
TEST(CudnnRnn, WeightsOfAnLstmWithProjectionFillTheBufferInOrder) {
  Rnn lstm(2, 0, 10, 20, 5, 1);
  expect_layout(lstm, 4, 1, true, 4 * 20 * (10 + 5) + 20 * 5 + 8 * 20);
}

// What cuDNN needed according to an engineer of NVIDIA's (pytorch/pytorch issue 2895).
TEST(CudnnRnn, TrainingSizesGivePublishedFiguresOfCudnn) {
  struct {
    int cell;
    size_t workspace, reserve;
  } published[] = {{2, 17730560, 736000000}, {3, 13169920, 864000000}};
  void *data = nullptr, *handle = nullptr;
  ASSERT_EQ(call("cudnnCreateRNNDataDescriptor", &data), 0);
  std::vector<int> lengths(100, 250);
  EXPECT_EQ(call("cudnnSetRNNDataDescriptor", data, 0, 0, 250, 100, 123, static_cast<const int *>(lengths.data()), handle), 0);
  for (auto &figures : published) {
    Rnn rnn(figures.cell, 0, 123, 320, 0, 4);
    size_t workspace = 0, reserve = 0;
    EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, rnn.descriptor, 1, data, &workspace, &reserve), 0);
    EXPECT_EQ(workspace, figures.workspace);
    EXPECT_EQ(reserve, figures.reserve);
  }
}

TEST(CudnnRnn, OnlyTrainingReservesAndTheRuleIsNoted) {
  Rnn lstm(2, 0, 10, 20, 0, 2);
  void *data = nullptr;
  ASSERT_EQ(call("cudnnCreateRNNDataDescriptor", &data), 0);
  const int lengths[3] = {7, 7, 7};
  float fill = 0;
  EXPECT_EQ(call("cudnnSetRNNDataDescriptor", data, 0, 0, 7, 3, 10, lengths, static_cast<void *>(&fill)), 0);
  size_t workspace = 0, reserve = 1;
  void *handle = nullptr;
  EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, lstm.descriptor, 0, data, &workspace, &reserve), 0);
  EXPECT_GT(workspace, 0u);
  EXPECT_EQ(reserve, 0u);
  EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, lstm.descriptor, 1, data, &workspace, &reserve), 0);
  // At least the activated gates of every step, sequence and layer.
  EXPECT_GE(reserve, 7u * 3 * 2 * 4 * 20 * 4);
  EXPECT_NE(notes().find("\"guess-library\", \"text\": \"LSTM, GRU and RNN"), std::string::npos) << notes();
}

}  // namespace
}  // namespace gpumem::libraries_test
