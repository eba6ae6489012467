// SPDX-License-Identifier: Apache-2.0
// What gpumem acts on, how it rewrites, and what it says: tables of requests as Slurm 22.05 to 26.05 write them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "daemon/policy/decision.h"
#include "daemon/policy/job_environment.h"
#include "daemon/policy/pool.h"
#include "daemon/policy/request.h"
#include "daemon/policy/rewrite.h"

namespace gpumem::policy {
namespace {

using Options = std::map<std::string, std::string>;

Request request_of(const Options& options, const std::string& version = "22.05.8") {
  Request request;
  request.command = "sbatch";
  request.slurm_version = version;
  request.options = options;
  request.script = "#!/bin/sh\npython train.py\n";
  request.script_path = "/home/u/job.sh";
  return request;
}

config::PoolSection pool_of(const std::string& mode = "apply", std::vector<std::string> gpus = {"NVIDIA GeForce RTX 3060"}) {
  config::PoolSection pool;
  pool.name = "main";
  pool.mode = mode;
  pool.gpus = std::move(gpus);
  return pool;
}

SlurmFacts facts_of(std::uint64_t cpus = 8, std::uint64_t mem_mib = 512) {
  SlurmFacts facts;
  facts.known = true;
  facts.cpus_per_gpu = cpus;
  facts.mem_per_gpu_mib = mem_mib;
  facts.partitions = {{"main", true, 0, 0, 3600}, {"big", false, 16, 2048, 0}};
  return facts;
}

TEST(Classify, OneGpuInEveryWayOfAsking) {
  const std::vector<std::pair<Options, std::string>> requests = {
      {{{"gres", "gres:gpu:1"}}, "--gres=gpu:1"},        {{{"gres", "gres/gpu:1"}}, "--gres=gpu:1"},
      {{{"gres", "gpu"}}, "--gres=gpu"},                 {{{"gres", "gres:gpu:a100:1"}}, "--gres=gpu:a100:1"},
      {{{"gres", "gres/gpu:a100"}}, "--gres=gpu:a100"},  {{{"gpus", "1"}}, "--gpus=1"},
      {{{"gpus", "a100:1"}}, "--gpus=a100:1"},           {{{"gpus-per-node", "1"}}, "--gpus-per-node=1"},
      {{{"gpus-per-task", "1"}}, "--gpus-per-task=1"},   {{{"gpus-per-task", "1"}, {"ntasks", "1"}}, "--gpus-per-task=1"},
      {{{"tres-per-task", "gres/gpu:1"}}, "--tres-per-task=gres/gpu:1"},
      {{{"gres", "gres:gpu:1,gres:tmp:10"}}, "--gres=gpu:1,tmp:10"},
      {{{"gres", "gpu:1"}, {"nodes", "1"}, {"ntasks", "4"}}, "--gres=gpu:1"},
      {{{"gres", "gpu:1"}, {"nodes", "1-1"}}, "--gres=gpu:1"},
      {{{"gres", "gpu:1"}, {"exclusive", "unset"}}, "--gres=gpu:1"},
  };
  for (const auto& [options, text] : requests) {
    const GpuRequest gpu = classify(request_of(options));
    EXPECT_EQ(gpu.asked, Asked::one_gpu) << text << ": " << gpu.reason;
    if (options.count("tres-per-task") == 0) {
      EXPECT_EQ(gpu.text, text);
    }
  }
  EXPECT_EQ(classify(request_of({{"gres", "gres:gpu:a100:1"}})).type, "a100");
  EXPECT_EQ(classify(request_of({{"gpus", "h100:1"}})).type, "h100");
}

TEST(Classify, NoGpuIsNotOurBusiness) {
  for (const Options& options : std::vector<Options>{{}, {{"gres", "none"}}, {{"gres", "gres:tmp:4"}}, {{"gpus", "0"}}, {{"gres", "gpu:0"}},
                                                     {{"gres", ""}}, {{"gpus", "(null)"}}, {{"tres-per-task", "cpu:4"}}, {{"gres", "gpumem:5"}}}) {
    EXPECT_EQ(classify(request_of(options)).asked, Asked::nothing) << (options.empty() ? "" : options.begin()->second);
  }
}

TEST(Classify, EverythingElseIsLeftAloneWithAReason) {
  const std::vector<std::pair<Options, std::string>> requests = {
      {{{"gres", "gpu:2"}}, "several GPUs"},
      {{{"gpus", "4"}}, "several GPUs"},
      {{{"gpus", "a100:1,v100:1"}}, "not a GPU request"},
      {{{"gres", "gpu:a:1,gpu:b:1"}}, ""},
      {{{"gres", "gpu:a:1"}, {"gpus", "b:1"}}, "contradict"},
      {{{"gres", "gpu:1"}, {"gpus", "0"}}, "contradict"},
      {{{"gres", "gres:shard:20"}}, "shards"},
      {{{"gres", "shard:h100:20"}}, "shards"},
      {{{"gres", "mps:50"}}, "shards"},
      {{{"gres", "gpu:a:b:c"}}, "not a GPU request"},
      {{{"gres", "gpu:1"}, {"exclusive", "exclusive"}}, "--exclusive"},
      {{{"gres", "gpu:1"}, {"exclusive", "user"}}, "--exclusive"},
      {{{"gres", "gpu:1"}, {"gpu-freq", "low"}}, "--gpu-freq"},
      {{{"gres", "gpu:1"}, {"ntasks-per-gpu", "2"}}, "--ntasks-per-gpu"},
      {{{"gres", "gpu:1"}, {"gres-flags", "enforce-binding"}}, "enforce-binding"},
      {{{"gres", "gpu:1"}, {"nodes", "2"}}, "several nodes"},
      {{{"gres", "gpu:1"}, {"nodes", "1-4"}}, "several nodes"},
      {{{"gres", "gpu:1"}, {"ntasks", "4"}}, "several nodes"},
      {{{"gpus-per-task", "1"}, {"ntasks", "2"}, {"nodes", "1"}}, "several tasks"},
      {{{"gpus-per-socket", "1"}}, "--gpus-per-socket"},
  };
  for (const auto& [options, reason] : requests) {
    const GpuRequest gpu = classify(request_of(options));
    EXPECT_EQ(gpu.asked, Asked::something) << options.begin()->second;
    EXPECT_NE(gpu.reason.find(reason), std::string::npos) << gpu.reason << " lacks " << reason;
  }
  Request inside = request_of({{"gres", "gpu:1"}});
  inside.inside_job = true;
  EXPECT_EQ(classify(inside).asked, Asked::something);
  Request heterogeneous = request_of({{"gres", "gpu:1"}});
  heterogeneous.heterogeneous = true;
  EXPECT_EQ(classify(heterogeneous).asked, Asked::something);
}

TEST(ParseRequest, RefusesNonsense) {
  EXPECT_FALSE(parse_request(protocol::Message("decide")).ok());
  for (const char* mode : {"maybe", "-1", "0", "99999999999999999999", "1e9"}) {
    protocol::Message message("decide");
    message.add("command", "sbatch").add("mode", mode);
    EXPECT_FALSE(parse_request(message).ok()) << mode;
  }
}

TEST(ParseRequest, TakesOptionsAndMakesAScriptOfWrap) {
  protocol::Message message("decide");
  message.add("command", "sbatch").add("mode", "1073741824").add("wrap", "python x.py").add("option.gres", "gpu:1").add("option.mem-per-gpu", "4G");
  const auto request = parse_request(message);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->wish, Wish::size);
  EXPECT_EQ(request->size_bytes, 1u << 30);
  EXPECT_EQ(request->option("mem-per-gpu"), "4G");
  EXPECT_EQ(request->script_name(), "wrap");
  EXPECT_NE(request->script->find("python x.py"), std::string::npos);
}

TEST(ChoosePool, EveryPartitionMustLeadToOnePool) {
  config::PoolSection a = pool_of(), b = pool_of(), rest = pool_of();
  a.name = "a", a.partitions = {"main", "big"};
  b.name = "b", b.partitions = {"b"};
  rest.name = "rest", rest.accounts = {"physics"};
  const SlurmFacts facts = facts_of();
  const auto name_of = [](const PoolChoice& choice) { return choice.pool != nullptr ? choice.pool->name : "none: " + choice.reason; };
  const std::vector<config::PoolSection> pools = {a, b, rest};
  EXPECT_EQ(name_of(choose_pool(request_of({}), pools, facts)), "a");  // Slurm's default partition
  EXPECT_EQ(name_of(choose_pool(request_of({{"partition", "main,big"}}), pools, facts)), "a");
  EXPECT_EQ(name_of(choose_pool(request_of({{"partition", "main,b"}}), pools, facts)), "none: its partitions belong to different pools");
  EXPECT_EQ(name_of(choose_pool(request_of({{"partition", "c"}}), pools, facts)), "none: no pool is for partition c");
  EXPECT_EQ(name_of(choose_pool(request_of({{"partition", "c"}, {"account", "physics"}}), pools, facts)), "rest");
  EXPECT_EQ(name_of(choose_pool(request_of({}), {pool_of()}, SlurmFacts())), "main");  // a pool for all, partition not known
  EXPECT_EQ(choose_pool(request_of({}), pools, SlurmFacts()).pool, nullptr);
  EXPECT_EQ(choose_pool(request_of({}), {}, facts).pool, nullptr);
}

TEST(PoolObstacle, ReservationsAndLongJobs) {
  config::PoolSection pool = pool_of();
  const SlurmFacts facts = facts_of();
  EXPECT_EQ(pool_obstacle(request_of({}), pool, {"main"}, facts), "");
  EXPECT_NE(pool_obstacle(request_of({{"reservation", "r"}}), pool, {"main"}, facts), "");
  pool.reservations = true;
  EXPECT_EQ(pool_obstacle(request_of({{"reservation", "r"}}), pool, {"main"}, facts), "");
  pool.longest_time.seconds = 7200;
  EXPECT_EQ(pool_obstacle(request_of({}), pool, {"main"}, facts), "");  // the partition's default is an hour
  EXPECT_NE(pool_obstacle(request_of({}), pool, {"big"}, facts), "");   // no limit there
  EXPECT_EQ(pool_obstacle(request_of({{"time", "2:00:00"}}), pool, {"big"}, facts), "");
  EXPECT_NE(pool_obstacle(request_of({{"time", "2:00:01"}}), pool, {"big"}, facts), "");
}

TEST(TypeMatch, LettersAndDigitsOfOneInTheOther) {
  EXPECT_TRUE(type_matches_model("rtx3060", "NVIDIA GeForce RTX 3060"));
  EXPECT_TRUE(type_matches_model("nvidia_geforce_rtx_3060", "NVIDIA GeForce RTX 3060"));
  EXPECT_FALSE(type_matches_model("a100", "NVIDIA GeForce RTX 3060"));
}

Rewrite rewrite_of(const Options& options, const std::string& version = "22.05.8", config::PoolSection pool = pool_of(),
                   const SlurmFacts& facts = facts_of(), std::vector<std::string> partitions = {"main"}) {
  const Request request = request_of(options, version);
  const GpuRequest gpu = classify(request);
  EXPECT_EQ(gpu.asked, Asked::one_gpu) << gpu.reason;
  return rewrite(request, gpu, 4000, pool, partitions, facts);
}

using Words = std::vector<std::string>;

TEST(Rewrite, MakesWhatTheGpuBroughtExplicit) {
  const Rewrite r = rewrite_of({{"gres", "gres:gpu:1"}});
  EXPECT_EQ(r.reset, Words{});
  EXPECT_EQ(r.set, (Words{"gres=shard:4000", "cpus-per-task=8", "mem=512M"}));
}

TEST(Rewrite, ResetsEveryOtherWayOfAskingForAGpu) {
  const Rewrite r = rewrite_of({{"gpus", "1"}, {"gpus-per-node", "1"}, {"gpu-bind", "closest"}});
  EXPECT_EQ(r.reset, (Words{"gpus", "gpus-per-node", "gpu-bind"}));
}

TEST(Rewrite, ResetsWhatNewerSlurmMakesOfGpusPerTask) {
  EXPECT_EQ(rewrite_of({{"gpus-per-task", "1"}}).reset, (Words{"gpus-per-task"}));
  EXPECT_EQ(rewrite_of({{"gpus-per-task", "1"}}, "24.11.5").reset, (Words{"gpus-per-task", "tres-per-task", "tres-bind"}));
}

TEST(Rewrite, TranslatesPerGpuOptions) {
  const Rewrite r = rewrite_of({{"gpus", "1"}, {"cpus-per-gpu", "6"}, {"mem-per-gpu", "8G"}});
  EXPECT_EQ(r.reset, (Words{"gpus", "cpus-per-gpu", "mem-per-gpu"}));
  EXPECT_EQ(r.set, (Words{"gres=shard:4000", "cpus-per-task=6", "mem=8192M"}));
}

TEST(Rewrite, TheUsersOwnCpusAndMemoryStay) {
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}, {"cpus-per-task", "12"}, {"mem", "4G"}}).set, (Words{"gres=shard:4000"}));
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}, {"mem-per-cpu", "1G"}}).set, (Words{"gres=shard:4000", "cpus-per-task=8"}));
  // Even one CPU, where the user says so, is what Slurm gives.
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}, {"cpus-per-task", "1"}}).set, (Words{"gres=shard:4000", "mem=512M"}));
  // Otherwise it gives the larger of what tasks and GPU bring.
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}, {"ntasks", "4"}, {"nodes", "1"}, {"mem", "4G"}}).set, (Words{"gres=shard:4000", "cpus-per-task=2"}));
}

TEST(Rewrite, PartitionAndPoolDefaultsComeBeforeTheClusters) {
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}}, "22.05.8", pool_of(), facts_of(), {"big"}).set, (Words{"gres=shard:4000", "cpus-per-task=16", "mem=2048M"}));
  config::PoolSection pool = pool_of();
  pool.cpus_per_gpu = 3;
  pool.mem_per_gpu.bytes = 1ull << 30;
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}}, "22.05.8", pool).set, (Words{"gres=shard:4000", "cpus-per-task=3", "mem=1024M"}));
  // No defaults at all: one CPU, and Slurm's memory by CPU or node, as for the original.
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}}, "22.05.8", pool_of(), facts_of(0, 0)).set, (Words{"gres=shard:4000"}));
}

TEST(Rewrite, WithoutSlurmsDefaultsNothingIsRewrittenUnlessAllIsSaid) {
  SlurmFacts unknown;
  unknown.problem = "slurmctld is away";
  EXPECT_NE(rewrite_of({{"gres", "gpu:1"}}, "22.05.8", pool_of(), unknown).obstacle.find("slurmctld is away"), std::string::npos);
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}, {"cpus-per-gpu", "4"}, {"mem", "4G"}}, "22.05.8", pool_of(), unknown).obstacle, "");
  config::PoolSection pool = pool_of();
  pool.cpus_per_gpu = 3;
  pool.mem_per_gpu.bytes = 1ull << 30;
  EXPECT_EQ(rewrite_of({{"gres", "gpu:1"}}, "22.05.8", pool, unknown).obstacle, "");
}

TEST(Rewrite, OtherGresStay) { EXPECT_EQ(rewrite_of({{"gres", "gres:tmp:10,gres:gpu:1"}}).set.front(), "gres=shard:4000,tmp:10"); }

TEST(Rewrite, ATypeIsKeptOnlyWhereItMattersAndSlurmCan) {
  EXPECT_EQ(rewrite_of({{"gres", "gpu:a100:1"}}).set.front(), "gres=shard:4000");
  const config::PoolSection two = pool_of("apply", {"A", "B"});
  EXPECT_NE(rewrite_of({{"gres", "gpu:a:1"}}, "22.05.8", two).obstacle, "");
  EXPECT_EQ(rewrite_of({{"gres", "gpu:a:1"}}, "24.11.5", two).set.front(), "gres=shard:a:4000");
}

TEST(Rewrite, UnreadablePerGpuOptionsAreObstacles) {
  EXPECT_NE(rewrite_of({{"gpus", "1"}, {"cpus-per-gpu", "many"}}).obstacle, "");
  EXPECT_NE(rewrite_of({{"gpus", "1"}, {"mem-per-gpu", "lots"}}).obstacle, "");
  EXPECT_NE(rewrite_of({{"tres-per-task", "gres/gpu:1,license/x:1"}}, "24.11.5").obstacle, "");
}

Answer decide_for(const std::string& mode, const Evidence& evidence, const MarginRule& margin, std::uint64_t shards = 11913,
                  const std::string& gres = "gpu:1") {
  const Request request = request_of({{"gres", gres}});
  static config::PoolSection pool;
  pool = pool_of(mode);
  const Place place{&pool, {"main"}, "NVIDIA GeForce RTX 3060", shards};
  return decide(request, classify(request), place, facts_of(), evidence, margin);
}

constexpr std::uint64_t kMib = 1ull << 20;

TEST(Decide, ApplyRewritesAndTellsTheNumbers) {
  const Answer answer = decide_for("apply", {"probe", 3800 * kMib, "probe, 6.2 s", 0}, {5, 64 * kMib, 0});
  EXPECT_EQ(answer.action, "rewrite");
  EXPECT_EQ(answer.limit_mib, 3990u);
  EXPECT_EQ(answer.line,
            "needs 3.9 GiB on NVIDIA GeForce RTX 3060 (estimate 3.7 GiB + margin 5 %): requesting shard:3990 instead of --gres=gpu:1 [probe, 6.2 s]");
}

TEST(Decide, TheFloorIsTheLeastMargin) {
  const Answer answer = decide_for("apply", {"probe", 500 * kMib, "", 0}, {5, 64 * kMib, 0});
  EXPECT_EQ(answer.limit_mib, 564u);
  EXPECT_NE(answer.line.find("+ margin 64.0 MiB"), std::string::npos) << answer.line;
}

TEST(Decide, AUsersSizeGetsNoMargin) {
  const Answer answer = decide_for("apply", {"user", 6144 * kMib, "", 0}, {5, 64 * kMib, 0});
  EXPECT_EQ(answer.limit_mib, 6144u);
  EXPECT_EQ(answer.margin_bytes, 0u);
  EXPECT_EQ(answer.line, "limit 6.0 GiB as you asked: requesting shard:6144 instead of --gres=gpu:1");
}

TEST(Decide, AdviseSpeaksAndObserveIsSilentAndBothKeep) {
  const Answer advise = decide_for("advise", {"probe", 3800 * kMib, "", 0}, {5, 0, 0});
  EXPECT_EQ(advise.action, "keep");
  EXPECT_NE(advise.line.find("only advice"), std::string::npos);
  const Answer observe = decide_for("observe", {"probe", 3800 * kMib, "", 0}, {5, 0, 0});
  EXPECT_EQ(observe.action, "keep");
  EXPECT_EQ(observe.line, "");
  EXPECT_EQ(observe.limit_mib, 3990u);  // recorded
}

TEST(Decide, MoreThanCanBeSharedKeepsAWholeGpu) {
  const Answer answer = decide_for("apply", {"probe", 11600 * kMib, "", 0}, {5, 0, 0});
  EXPECT_EQ(answer.action, "keep");
  EXPECT_EQ(answer.rule, "probe");
  EXPECT_NE(answer.line.find("keeps a whole GPU"), std::string::npos) << answer.line;
}

TEST(Decide, MoreThanAGpuHasSaysWhatWouldHelp) {
  const Answer answer = decide_for("apply", {"probe", 13000 * kMib, "", 0}, {5, 0, 0});
  EXPECT_EQ(answer.action, "keep");
  EXPECT_EQ(answer.rule, "too_large");
  EXPECT_NE(answer.line.find("smaller batch"), std::string::npos);
  EXPECT_NE(answer.line.find("submitted as it was"), std::string::npos);
}

TEST(Decide, AfterAnOutOfMemoryTheLimitIsLarger) {
  const Answer answer = decide_for("apply", {"probe", 3800 * kMib, "", 3990}, {5, 0, 0});
  EXPECT_EQ(answer.limit_mib, 4788u);
  EXPECT_EQ(decide_for("apply", {"probe", 3800 * kMib, "", 3000}, {5, 0, 0}).limit_mib, 3990u);
}

TEST(Decide, AnObstacleIsToldWithTheNeed) {
  const Answer answer = decide_for("apply", {"user", 4000 * kMib, "", 0}, {}, 11913, "gpu:1");
  EXPECT_EQ(answer.action, "rewrite");
  const Answer kept = keep(nullptr, "left_alone", "reason", true);
  EXPECT_EQ(kept.line, "");
}

TEST(Environment, ExportRulesOfSbatch) {
  Request request = request_of({});
  request.environment = {"PATH=/bin", "HOME=/h", "A=1", "B=2", "GPUMEM_TOKEN=x", "broken"};
  const auto has = [](const std::vector<std::string>& list, const std::string& item) { return std::find(list.begin(), list.end(), item) != list.end(); };
  const auto all = job_environment(request, "u", "host");
  EXPECT_TRUE(has(all, "A=1") && has(all, "B=2") && has(all, "SLURM_NTASKS=1") && has(all, "SLURM_PROCID=0"));
  EXPECT_FALSE(has(all, "GPUMEM_TOKEN=x"));
  request.options["export"] = "NONE";
  const auto none = job_environment(request, "u", "host");
  EXPECT_TRUE(has(none, "PATH=/bin") && has(none, "HOME=/h"));
  EXPECT_FALSE(has(none, "A=1"));
  request.options["export"] = "B,C=3";
  const auto some = job_environment(request, "u", "host");
  EXPECT_TRUE(has(some, "B=2") && has(some, "C=3"));
  EXPECT_FALSE(has(some, "A=1"));
  request.options["export"] = "ALL,C=3";
  EXPECT_TRUE(has(job_environment(request, "u", "host"), "A=1"));
  request.options["array"] = "5-9%2";
  EXPECT_TRUE(has(job_environment(request, "u", "host"), "SLURM_ARRAY_TASK_ID=5"));
}

TEST(Fingerprint, ChangesWithWhatTheProgramSeesAndWithNothingElse) {
  Request base = request_of({{"gres", "gpu:1"}});
  base.environment = {"PATH=/bin", "BATCH=64", "SSH_TTY=/dev/pts/1", "SLURM_CONF=/x"};
  base.working_directory = "/home/u";
  const std::string print = fingerprint(base, "GPU", 0);
  EXPECT_EQ(print.size(), 32u);
  Request same = base;
  same.environment = {"SSH_TTY=/dev/pts/9", "BATCH=64", "PATH=/bin"};
  same.options["time"] = "1:00";
  EXPECT_EQ(fingerprint(same, "GPU", 0), print);
  EXPECT_NE(fingerprint(base, "GPU 2", 0), print);
  EXPECT_NE(fingerprint(base, "GPU", 1), print);
  for (const auto& change : std::vector<std::function<void(Request&)>>{
           [](Request& r) { r.environment[1] = "BATCH=128"; }, [](Request& r) { r.arguments = {"--big"}; },
           [](Request& r) { r.script = "#!/bin/sh\npython other.py\n"; }, [](Request& r) { r.working_directory = "/tmp"; },
           [](Request& r) { r.options["array"] = "3-4"; }}) {
    Request changed = base;
    change(changed);
    EXPECT_NE(fingerprint(changed, "GPU", 0), print);
  }
}

TEST(SlurmRelease, OrdersVersions) {
  EXPECT_EQ(slurm_release("22.05.8"), 2205u);
  EXPECT_EQ(slurm_release("24.11.5"), 2411u);
  EXPECT_EQ(slurm_release(""), 0u);
  EXPECT_EQ(slurm_release("unknown"), 0u);
}

TEST(SlurmFacts, ReadsTheHelpersJsonAndItsError) {
  const auto facts = parse_slurm_facts(R"({"cluster":"c","version":"22.05.8","slurm_user_id":5,"cpus_per_gpu":8,"mem_per_gpu_mib":512,
      "partitions":[{"name":"p","default":true,"cpus_per_gpu":2,"mem_per_gpu_mib":0,"default_time_s":60}]})");
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->default_partition(), "p");
  EXPECT_EQ(facts->partition("p")->cpus_per_gpu, 2u);
  EXPECT_EQ(parse_slurm_facts(R"({"error":"no slurmctld"})").error().message, "no slurmctld");
  EXPECT_FALSE(parse_slurm_facts("nonsense").ok());
  EXPECT_FALSE(parse_slurm_facts("{}").ok());
}

}  // namespace
}  // namespace gpumem::policy
