// SPDX-License-Identifier: Apache-2.0
// Learned workspaces: the table's lines and look-up, what a job adds to it, and which plans count as the same.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "estimator/workspaces/merge.h"
#include "estimator/workspaces/plans.h"
#include "estimator/workspaces/table.h"

namespace ws = gpumem::workspaces;

namespace {

std::string directory() {
  static const std::string made = [] {
    char path[] = "/var/tmp/workspaces-test-XXXXXX";
    return std::string(mkdtemp(path));
  }();
  return made;
}

std::string file(const std::string& name, const std::string& text) {
  const std::string path = directory() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string line(const std::string& gpu, std::uint64_t version, std::uint64_t key, std::uint64_t bytes, const std::string& label = "conv") {
  char text[ws::kMaxLine];
  const size_t length = ws::format({gpu.data(), gpu.size(), version, key, bytes, label.data(), label.size()}, text, sizeof text);
  return std::string(text, length);
}

// A convolution as cudnn_frontend describes one; the descriptors are numbered addresses.
struct Convolution {
  std::vector<int64_t> x{8, 64, 56, 56}, w{64, 64, 3, 3};
  int64_t padding = 1, alignment = 16, unique_id = 'x';
  int data_type = 0, operation = 10;
  bool reversed = false;  // attributes set in another order
};

char* next_address() {
  static char* base = reinterpret_cast<char*>(0x10000);
  return base += 64;
}

void set_int64(void* of, int name, const std::vector<int64_t>& values) { ws::attribute_set(of, name, 3, static_cast<int64_t>(values.size()), values.data()); }
void set_child(void* of, int name, void* child) { ws::attribute_set(of, name, 15, 1, &child); }

void* tensor(const Convolution& of, const std::vector<int64_t>& dimensions) {
  void* t = next_address();
  ws::created(t, 17);
  if (of.reversed) set_int64(t, 902, dimensions);
  ws::attribute_set(t, 901, 1, 1, &of.data_type);
  if (!of.reversed) set_int64(t, 902, dimensions);
  set_int64(t, 903, {1, 1, 1, 1});
  set_int64(t, 900, {of.alignment});
  set_int64(t, 906, {of.unique_id});
  return t;
}

void* heuristic(const Convolution& of) {
  void *conv = next_address(), *operation = next_address(), *graph = next_address(), *heuristic = next_address();
  ws::created(conv, 1);
  set_int64(conv, 103, {of.padding, of.padding});
  ws::created(operation, of.operation);
  set_child(operation, 704, tensor(of, of.x));
  set_child(operation, 703, tensor(of, of.w));
  set_child(operation, 702, conv);
  ws::created(graph, 15);
  set_child(graph, 801, operation);
  ws::created(heuristic, 4);
  set_child(heuristic, 201, graph);
  const int mode = of.reversed ? 1 : 0;
  ws::attribute_set(heuristic, 200, 8, 1, &mode);
  return heuristic;
}

// A plan of the heuristic's answer.
void* plan_of(void* heuristic) {
  void *config = next_address(), *plan = next_address();
  ws::created(config, 3);
  ws::attribute_got(heuristic, 202, 15, 1, &config);
  ws::created(plan, 5);
  set_child(plan, 401, config);
  return plan;
}

ws::Plan known(void* plan) {
  ws::Plan found{};
  EXPECT_TRUE(ws::find_plan(plan, &found));
  return found;
}

}  // namespace

TEST(WorkspaceTable, KeepsWhatWasWritten) {
  const std::string text = line("NVIDIA GeForce RTX 3060", 90100, 0x00ab, 10027024, "conv_forward f32 8x3");
  EXPECT_EQ(text, "NVIDIA GeForce RTX 3060\t90100\t00000000000000ab\t10027024\tconv_forward f32 8x3\n");
  ws::Entry entry;
  ASSERT_TRUE(ws::parse(text.data(), text.size() - 1, &entry));
  EXPECT_EQ(std::string(entry.gpu, entry.gpu_length), "NVIDIA GeForce RTX 3060");
  EXPECT_EQ(entry.cudnn_version, 90100u);
  EXPECT_EQ(entry.key, 0xabu);
  EXPECT_EQ(entry.workspace_bytes, 10027024u);
}

TEST(WorkspaceTable, RefusesWhatIsNoLine) {
  ws::Entry entry;
  for (const std::string& text : {std::string(), std::string("GPU\t90100\tab\t1\tlabel"), std::string("\t90100\t00000000000000ab\t1\tlabel"),
                                  std::string("GPU\t90100\t00000000000000ab\t-1\tlabel"), std::string("GPU\t90100\t00000000000000ab\t1"),
                                  std::string("GPU\t90100\t00000000000000AB\t1\tl"), std::string("GPU\t90100\t00000000000000ab\t1\tl\tm"),
                                  "GPU\t90100\t00000000000000ab\t1\t" + std::string(400, 'l')}) {
    EXPECT_FALSE(ws::parse(text.data(), text.size(), &entry)) << text;
  }
}

TEST(WorkspaceTable, FindsThePlanOfThatGpuAndVersionOnly) {
  const std::string path = file("table.tsv", "garbage\n" + line("A", 90100, 7, 1) + line("B", 90100, 7, 2) + line("B", 90800, 7, 3) +
                                                 line("B", 90800, 7, 4) + "B\t90800\t0000000000000008\t5\ttorn");
  ws::Table table;
  ASSERT_TRUE(ws::map(path.c_str(), &table));
  std::uint64_t bytes = 0;
  EXPECT_TRUE(ws::look_up(table, "B", 90100, 7, &bytes));
  EXPECT_EQ(bytes, 2u);
  EXPECT_TRUE(ws::look_up(table, "B", 90800, 7, &bytes));
  EXPECT_EQ(bytes, 3u) << "the first line counts";
  EXPECT_FALSE(ws::look_up(table, "B", 91900, 7, &bytes));
  EXPECT_FALSE(ws::look_up(table, "C", 90100, 7, &bytes));
  EXPECT_FALSE(ws::look_up(table, "B", 90800, 8, &bytes)) << "a torn line is none";
  ws::unmap(&table);
  EXPECT_FALSE(ws::map((directory() + "/absent").c_str(), &table));
}

TEST(WorkspaceMerge, AddsPlansAndKeepsTheLargerSize) {
  const std::string table = directory() + "/node.tsv";
  const std::string first = file("first", line("A", 90100, 1, 100) + line("A", 90100, 2, 200));
  auto merged = ws::merge(first, table, "A", 1 << 20);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->added, 2);
  const std::string second = file("second", line("A", 90100, 1, 50) + line("A", 90100, 2, 250) + line("A", 90100, 3, 0));
  merged = ws::merge(second, table, "A", 1 << 20);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->added, 1);
  EXPECT_EQ(merged->grown, 1);
  EXPECT_EQ(read(table), line("A", 90100, 1, 100) + line("A", 90100, 2, 250) + line("A", 90100, 3, 0));
  struct stat status {};
  ASSERT_EQ(::stat(table.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  merged = ws::merge(second, table, "A", 1 << 20);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->added + merged->grown, 0) << "the same again changes nothing";
}

TEST(WorkspaceMerge, BelievesNothingButItsForm) {
  const std::string table = directory() + "/distrust.tsv";
  std::string text = line("B", 90100, 1, 1) + line("A", 90100, 2, 2 << 20) + "noise\n";
  for (int i = 0; i < ws::kMostOfJob + 10; ++i) text += line("A", 90100, 100 + static_cast<std::uint64_t>(i), 1);
  auto merged = ws::merge(file("forged", text), table, "A", 1 << 20);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->added, ws::kMostOfJob);
  EXPECT_EQ(read(table).find("B\t"), std::string::npos) << "another GPU model";
  EXPECT_EQ(read(table).find("\t2097152\t"), std::string::npos) << "larger than the GPU";
  EXPECT_TRUE(ws::merge(directory() + "/absent", table, "A", 1 << 20)) << "a job that used no cuDNN";
}

TEST(WorkspacePlans, TheSameConvolutionHasTheSameKey) {
  const Convolution one;
  Convolution other;
  other.alignment = 4;
  other.unique_id = 'y';
  other.reversed = true;
  const ws::Plan a = known(plan_of(heuristic(one))), b = known(plan_of(heuristic(other)));
  EXPECT_EQ(a.key, b.key);
  EXPECT_STREQ(a.label, "conv_forward f32 8x64x56x56, f32 64x64x3x3");
}

TEST(WorkspacePlans, AnotherShapeTypePaddingOrDirectionHasAnotherKey) {
  const std::uint64_t key = known(plan_of(heuristic({}))).key;
  Convolution shape, type, padding, direction;
  shape.x[0] = 16;
  type.data_type = 2;
  padding.padding = 0;
  direction.operation = 12;
  for (const Convolution& other : {shape, type, padding, direction}) EXPECT_NE(known(plan_of(heuristic(other))).key, key);
}

TEST(WorkspacePlans, APlanIsInUseFromItsFifthExecutionOn) {
  Convolution of;
  of.x = {3, 3, 3, 3};
  void* plan = plan_of(heuristic(of));
  ws::Plan seen{};
  for (unsigned i = 1; i < ws::kInUseAfter; ++i) EXPECT_FALSE(ws::executed(plan, &seen));
  EXPECT_TRUE(ws::executed(plan, &seen));
  EXPECT_EQ(seen.key, known(plan).key);
  EXPECT_FALSE(ws::executed(plan, &seen)) << "told once";
}

TEST(WorkspacePlans, BenchmarkedPlansTeachNothing) {
  Convolution of;
  of.x = {5, 5, 5, 5};
  void* asked = heuristic(of);
  void *one = plan_of(asked), *other = plan_of(asked);
  ws::Plan seen{};
  for (unsigned i = 0; i < ws::kInUseAfter; ++i) ws::executed(one, &seen);
  of.x = {6, 6, 6, 6};
  asked = heuristic(of);
  one = plan_of(asked), other = plan_of(asked);
  EXPECT_FALSE(ws::executed(one, &seen));
  EXPECT_FALSE(ws::executed(other, &seen));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(ws::executed(one, &seen));
}

TEST(WorkspacePlans, DestroyedDescriptorsAreForgotten) {
  Convolution of;
  of.x = {7, 7, 7, 7};
  void* plan = plan_of(heuristic(of));
  ws::Plan found{};
  ASSERT_TRUE(ws::find_plan(plan, &found));
  ws::destroyed(plan);
  EXPECT_FALSE(ws::find_plan(plan, &found));
  ws::created(plan, 5);  // the address again
  EXPECT_FALSE(ws::find_plan(plan, &found)) << "nothing is known of the new one yet";
  for (int i = 0; i < 20000; ++i) {  // the table grows with what lives, not with what ever lived
    void* address = next_address();
    ws::created(address, 17);
    ws::destroyed(address);
  }
  EXPECT_TRUE(ws::find_plan(plan_of(heuristic(of)), &found));
}
