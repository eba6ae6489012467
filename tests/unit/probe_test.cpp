// SPDX-License-Identifier: Apache-2.0
// estimator/probe: the request, the environment, and the sandbox, tried with shell scripts; no torch.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/size.h"
#include "base/subprocess.h"
#include "estimator/probe/client.h"
#include "estimator/probe/environment.h"
#include "estimator/probe/tracer_cache.h"
#include "estimator/probe/mounts.h"

namespace gpumem::probe {
namespace {

Request shell_request(const std::string& script) {
  Request request;
  request.command = {"/bin/sh", "-c", script};
  request.working_directory = "/";
  request.environment = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LC_ALL=C"};
  request.gpu = gpus::find_profile(PROFILES, "T4").value_or(gpus::Profile{});
  request.timeout_s = 60;
  request.keep_output = true;
  return request;
}

nlohmann::json probe(const Request& request, const std::string& program = GPUMEM_PROBE) {
  auto estimate = ask_probe(request, {program, nullptr});
  EXPECT_TRUE(estimate.ok()) << (estimate ? "" : estimate.error().message);
  return estimate.value_or(nlohmann::json::object());
}

std::string output_of(const nlohmann::json& estimate) { return estimate.value("output_tail", ""); }

std::string output_of_script(const std::string& script) {
  const auto estimate = probe(shell_request(script));
  EXPECT_NE(estimate.value("reason", ""), "no_sandbox") << estimate.value("error", "");
  return output_of(estimate);
}

bool process_exists(const std::string& marker) {
  DIR* listing = ::opendir("/proc");
  bool found = false;
  while (const dirent* entry = ::readdir(listing)) {
    auto command = read_file(std::string("/proc/") + entry->d_name + "/cmdline", 1 << 20);
    if (command && command->find(marker) != std::string::npos && std::to_string(::getpid()) != entry->d_name) found = true;
  }
  ::closedir(listing);
  return found;
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = make_temporary_directory("/tmp", "probe-test").value_or("");
    ASSERT_FALSE(directory_.empty());
  }
  void TearDown() override { ASSERT_TRUE(remove_tree(directory_).ok()); }
  std::string directory_;
};

TEST_F(SandboxTest, NothingThatAScriptWritesOrDeletesSurvives) {
  const std::string checkpoint = directory_ + "/model.pt", doomed = directory_ + "/doomed", kept = directory_ + "/kept";
  ASSERT_TRUE(write_file_atomically(checkpoint, "three days of training").ok());
  ASSERT_TRUE(write_file_atomically(doomed, "still needed").ok());
  ASSERT_TRUE(make_directories(kept + "/deep").ok());
  ASSERT_TRUE(write_file_atomically(kept + "/deep/file", "x").ok());
  const std::string output = output_of_script(
      "cd " + directory_ + " && echo new >model.pt && rm doomed && rm -r kept && mkdir kept && echo y >kept/other && mkdir -p runs/1 &&"
      " echo z >runs/1/log && mv model.pt renamed.pt && cat renamed.pt kept/other runs/1/log && ls && touch /tmp/probe-test-new /var/tmp/probe-test-new;"
      " ls /tmp/probe-test-new");
  EXPECT_NE(output.find("new\ny\nz\nkept\nrenamed.pt\nruns\n"), std::string::npos) << "inside, it all happened: " << output;
  EXPECT_EQ(read_file(checkpoint).value_or(""), "three days of training");
  EXPECT_EQ(read_file(doomed).value_or(""), "still needed");
  EXPECT_EQ(read_file(kept + "/deep/file").value_or(""), "x");
  EXPECT_NE(::access((directory_ + "/runs").c_str(), F_OK), 0);
  EXPECT_NE(::access("/tmp/probe-test-new", F_OK), 0);
  EXPECT_NE(::access("/var/tmp/probe-test-new", F_OK), 0);
}

TEST_F(SandboxTest, ADetachedProcessEndsWithTheProbe) {
  const std::string marker = "9753" + std::to_string(::getpid());
  const std::string output = output_of_script("setsid sleep " + marker + " >/dev/null 2>&1 </dev/null & sleep 0.1; echo left it behind");
  EXPECT_NE(output.find("left it behind"), std::string::npos);
  EXPECT_FALSE(process_exists(marker));
}

TEST_F(SandboxTest, NoNetworkButItsOwnLoopback) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const std::string output = output_of_script(
      "python3 - <<'E'\nimport socket\n"
      "try:\n  socket.create_connection(('127.0.0.1', " + port + "), 3); print('reached the host')\n"
      "except OSError as e: print('host:', type(e).__name__)\n"
      "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 3); print('own loopback works')\nE");
  ::close(listener);
  EXPECT_NE(output.find("host: ConnectionRefusedError"), std::string::npos) << output;
  EXPECT_NE(output.find("own loopback works"), std::string::npos) << output;
}

TEST_F(SandboxTest, ThisHostsNameIsItsOwnLoopbackWhateverNameServersSay) {
  const auto known = read_file("/etc/hosts");
  const std::string output = output_of_script("python3 -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'; cat /etc/hosts");
  EXPECT_EQ(output.find("127.0.0.1\n127.0.0.1 localhost "), 0u) << output;
  EXPECT_NE(output.find(known ? *known : ""), std::string::npos) << "what the file said otherwise stays: " << output;
  EXPECT_EQ(read_file("/etc/hosts").value_or(""), known ? *known : "") << "the host's is as it was";
}

TEST_F(SandboxTest, ForeignUnixSocketsLeadNowhere) {
  const std::string path = directory_ + "/socket";
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const std::string output = output_of_script(
      "ls /run; python3 - <<'E'\nimport socket\ns = socket.socket(socket.AF_UNIX)\n"
      "try:\n  s.connect('" + path + "'); print('connected')\nexcept OSError as e: print('refused:', type(e).__name__)\nE");
  ::close(listener);
  EXPECT_NE(output.find("gpumem-probe\nlock\n"), std::string::npos) << "/run is masked: " << output;
  EXPECT_NE(output.find("refused: "), std::string::npos) << output;
}

TEST_F(SandboxTest, DevicesAreHarmlessOnes) {
  const std::string output = output_of_script("ls /dev; echo x >/dev/null && head -c 4 /dev/zero | wc -c; echo shared >/dev/shm/a && cat /dev/shm/a; ls /dev | grep -c nvidia");
  EXPECT_NE(output.find("full\nnull\n"), std::string::npos) << output;
  EXPECT_NE(output.find("4\nshared\n0\n"), std::string::npos) << output;
  for (const char* name : {"mem", "kmsg", "sda", "vda", "loop0", "fuse"}) EXPECT_EQ(output.find(std::string(name) + "\n"), std::string::npos) << name;
}

TEST_F(SandboxTest, TheProgramIsTheUserAndHasNoMoreRights) {
  const std::string output = output_of_script(
      "id -u; grep -E '^(NoNewPrivs|CapEff)' /proc/self/status; kill -9 1; mount -t tmpfs none /mnt 2>/dev/null && echo mounted;"
      " umount /tmp 2>/dev/null && echo unmounted; echo 1 2>/dev/null >/proc/sys/kernel/printk && echo wrote a sysctl;"
      " touch /sys/x 2>/dev/null && echo wrote in sys; ps -A 2>/dev/null | grep -c probe_test");
  EXPECT_EQ(output.substr(0, output.find('\n')), std::to_string(::geteuid()));
  EXPECT_NE(output.find("NoNewPrivs:\t1"), std::string::npos) << output;
  if (::geteuid() != 0) {
    EXPECT_NE(output.find("CapEff:\t0000000000000000"), std::string::npos) << output;
  }
  for (const char* forbidden : {"mounted", "wrote"}) EXPECT_EQ(output.find(forbidden), std::string::npos) << output;
  EXPECT_EQ(output.substr(output.size() - 2), "0\n") << "processes outside cannot be seen: " << output;
}

TEST_F(SandboxTest, TheDeadlineEndsEverything) {
  const std::string marker = "8642" + std::to_string(::getpid());
  auto request = shell_request("echo begun; setsid sleep " + marker + " & sleep 1000; echo not reached");
  request.timeout_s = 0.5;
  const auto estimate = probe(request);
  EXPECT_EQ(estimate.value("status", ""), "timeout") << estimate;
  EXPECT_EQ(output_of(estimate), "begun\n");
  EXPECT_FALSE(process_exists(marker));
}

TEST_F(SandboxTest, AProgramThatTakesTooMuchHostMemoryIsEndedWithTheReason) {
  auto request = shell_request("python3 -c 'import time; a = bytearray(300 << 20); time.sleep(60)'");
  request.memory_limit_bytes = 100 * kMiB;
  const auto estimate = probe(request);
  EXPECT_EQ(estimate.value("status", ""), "failed");
  EXPECT_EQ(estimate.value("reason", ""), "host_failure") << estimate;
}

TEST_F(SandboxTest, AJobScriptRunsByItsInterpreterAsATaskOfAJob) {
  Request request = shell_request("");
  request.command.clear();
  request.script_content =
      "#!/bin/sh -u\n#SBATCH --gres=gpu:2\necho \"$SLURM_JOB_ID $SLURM_NTASKS $SLURM_PROCID $CUDA_VISIBLE_DEVICES $SLURM_SUBMIT_DIR $1 $(basename $0)\"\n"
      "echo $MISSING_VARIABLE; echo not reached\n";
  request.script_arguments = {"first argument"};
  request.gpu_count = 2;
  request.working_directory = directory_;
  const auto estimate = probe(request);
  EXPECT_EQ(output_of(estimate).find("67108863 1 0 0,1 " + directory_ + " first argument slurm_script\n"), 0u) << estimate;
  EXPECT_EQ(output_of(estimate).find("not reached"), std::string::npos) << "-u of its #! line counts";
}

TEST_F(SandboxTest, ExitStatusSignalAndAMissingProgramAreTold) {
  EXPECT_EQ(probe(shell_request("exit 7"))["program"]["exit_status"], 7);
  EXPECT_EQ(probe(shell_request("kill -SEGV $$"))["program"]["signal"], 11);
  auto request = shell_request("");
  request.command = {"no-such-program-here"};
  const auto estimate = probe(request);
  EXPECT_EQ(estimate["program"]["exit_status"], 127);
  EXPECT_NE(estimate["error"].get<std::string>().find("no-such-program-here"), std::string::npos) << estimate["error"];
}

TEST_F(SandboxTest, WhereNamespacesAreRefusedNothingIsRunUnlessTheUserWantsIt) {
  const std::string program = directory_ + "/probe-without-namespaces", trace = directory_ + "/ran";
  ASSERT_TRUE(write_file_atomically(program,
                                    "#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec \"$0\"' " GPUMEM_PROBE "\n",
                                    0755).ok());
  auto request = shell_request("touch " + trace);
  const auto estimate = probe(request, program);
  EXPECT_EQ(estimate.value("status", ""), "unsupported");
  EXPECT_EQ(estimate.value("reason", ""), "no_sandbox");
  EXPECT_NE(estimate.value("error", "").find("namespaces"), std::string::npos) << estimate["error"];
  EXPECT_NE(::access(trace.c_str(), F_OK), 0);
  request.sandbox_required = false;
  EXPECT_NE(probe(request, program).value("reason", ""), "no_sandbox");
  EXPECT_EQ(::access(trace.c_str(), F_OK), 0);
}

TEST_F(SandboxTest, WithoutASandboxProcessesStillEndWithTheProbe) {
  const std::string marker = "7531" + std::to_string(::getpid());
  auto request = shell_request("setsid sleep " + marker + " >/dev/null 2>&1 & echo started; sleep 0.1");
  request.sandbox_required = false;
  EXPECT_EQ(output_of(probe(request)), "started\n");
  EXPECT_FALSE(process_exists(marker));
}

TEST_F(SandboxTest, TheProbeLeavesNothingOnTheHost) {
  const auto count = [] {
    int found = 0;
    for (const char* place : {"/var/tmp", "/tmp"}) {
      DIR* listing = ::opendir(place);
      while (const dirent* entry = ::readdir(listing)) {
        struct stat status {};
        const std::string path = std::string(place) + "/" + entry->d_name;
        const bool ours = std::strncmp(entry->d_name, "gpumem-probe-", 13) == 0 && ::stat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid();
        found += ours;
      }
      ::closedir(listing);
    }
    return found;
  };
  const int before = count();
  probe(shell_request("mkdir -p /tmp/a/b; chmod 0 /tmp/a; mkdir /run/gpumem-probe/record/x; chmod 0 /run/gpumem-probe/record/x"));
  EXPECT_LE(count(), before);
}

// What an ordinary user gets when CI runs as root. The build directory must be open to everyone for it.
TEST(SandboxAsOrdinaryUser, HoldsToo) {
  if (::geteuid() != 0) return;  // then everything above ran as one
  SubprocessOptions options;
  options.arguments = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "/proc/self/exe"};
  char self[4096];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self - 1);
  ASSERT_GT(size, 0);
  options.arguments.back() = std::string(self, static_cast<std::size_t>(size));
  options.arguments.push_back("--gtest_filter=SandboxTest.*");
  options.timeout_s = 300;
  auto result = run_subprocess(options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->exit_status, 0) << result->output << result->error_output;
}

TEST_F(SandboxTest, OldCompiledTracersMakeRoomForNewOnes) {
  const std::string cache = directory_ + "/gpumem/tracer", lent = directory_ + "/lent";
  const std::vector<std::string> environment = {"XDG_CACHE_HOME=" + directory_};
  ASSERT_TRUE(make_directories(cache, 0700).ok());
  ASSERT_TRUE(make_directories(lent, 0700).ok());
  auto make = [](const std::string& path, time_t second) {
    ASSERT_TRUE(write_file_atomically(path, "tracer").ok());
    const timespec times[2] = {{second, 0}, {second, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  for (int i = 0; i < 100; ++i) make(cache + "/" + std::to_string(i) + ".so", 1'000'000 + i);
  lend_compiled_tracers(lent, environment);
  EXPECT_EQ(::access((lent + "/99.so").c_str(), F_OK), 0) << "the newest are lent";
  EXPECT_NE(::access((lent + "/0.so").c_str(), F_OK), 0) << "the oldest are not";
  make(lent + "/0.so", ::time(nullptr));  // so it was compiled once more
  keep_compiled_tracers(lent, environment);
  keep_compiled_tracers(lent, environment);  // of the next probe that compiles it
  const auto left = std::distance(std::filesystem::directory_iterator(cache), {});
  EXPECT_GT(left, 8);
  EXPECT_LT(left, 64);
  EXPECT_EQ(::access((cache + "/0.so").c_str(), F_OK), 0) << "what is used now is kept";
  EXPECT_NE(::access((cache + "/1.so").c_str(), F_OK), 0) << "the oldest has made room";
}

TEST(Request, SurvivesTheJourneyAndNamesWhatIsWrong) {
  auto request = shell_request("true");
  request.capacity_bytes = 5 * kGiB;
  request.stop_when_stable = false;
  auto again = parse_request(to_text(request));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_text(*again), to_text(request));
  const auto refused = [](const Request& wrong, const char* word) {
    auto parsed = parse_request(to_text(wrong));
    ASSERT_FALSE(parsed.ok()) << word;
    EXPECT_NE(parsed.error().message.find(word), std::string::npos) << parsed.error().message;
  };
  auto wrong = request;
  wrong.working_directory = "here";
  refused(wrong, "working_directory");
  wrong = request;
  wrong.gpu_count = 17;
  refused(wrong, "gpu_count");
  wrong = request;
  wrong.command.clear();
  refused(wrong, "command");
  wrong.script_content = "echo no interpreter";
  refused(wrong, "#!");
  EXPECT_FALSE(parse_request("not json").ok());
  EXPECT_FALSE(parse_request("{\"version\": 9}").ok());
}

TEST(ProgramEnvironment, KeepsTheUsersAndPutsOursFirst) {
  auto request = shell_request("true");
  request.environment = {"PATH=/opt/bin:/bin", "LD_PRELOAD=/opt/lib/theirs.so", "PYTHONPATH=/my/code", "CUDA_VISIBLE_DEVICES=7", "KEPT=1=2", "KEPT=3=4"};
  const Environment environment(program_environment(request, "/shared"));
  EXPECT_TRUE(environment.get("PATH")->ends_with(":/opt/bin:/bin"));
  EXPECT_TRUE(environment.get("LD_PRELOAD")->ends_with("/opt/lib/theirs.so"));
  EXPECT_TRUE(environment.get("PYTHONPATH")->ends_with(":/my/code"));
  EXPECT_EQ(*environment.get("GPUMEM_BOOK"), "/shared/book");
  EXPECT_EQ(*environment.get("KEPT"), "3=4");
  EXPECT_EQ(environment.get("CUDA_VISIBLE_DEVICES"), nullptr) << "the user's choice was about real devices";
  EXPECT_EQ(environment.get("SLURM_JOB_ID"), nullptr) << "a command is no job";
}

TEST(Mounts, AreReadWithTheirEscapesAndTheirOptions) {
  const auto mounts = parse_mountinfo(
      "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
      "36 27 0:40 / /home/a\\040b rw,nosuid shared:5 master:2 - nfs4 server:/x rw,vers=4\n"
      "nonsense\n"
      "37 27 0:41 / /usr/share/ro ro,relatime - squashfs /dev/loop0 ro\n");
  ASSERT_EQ(mounts.size(), 3u);
  EXPECT_EQ(mounts[1].point, "/home/a b");
  EXPECT_EQ(mounts[1].type, "nfs4");
  EXPECT_FALSE(mounts[1].read_only);
  EXPECT_TRUE(mounts[2].read_only);
  EXPECT_TRUE(has_mounts_below(mounts, "/usr"));
  EXPECT_FALSE(has_mounts_below(mounts, "/usr/share/ro"));
  EXPECT_EQ(mount_of(mounts, "/home/a b/c")->id, 36);
  EXPECT_EQ(mount_of(mounts, "/home/a")->id, 27);
  EXPECT_FALSE(is_within("/homes", "/home"));
}

std::string run_stand_in(const std::vector<std::string>& arguments, const std::string& path = "/usr/bin:/bin") {
  SubprocessOptions options;
  options.arguments = arguments;
  options.arguments[0] = std::string(STAND_INS) + "/" + arguments[0];
  options.environment = {"PATH=" + path, "SLURM_JOB_NODELIST=n1"};
  auto result = run_subprocess(options);
  return result ? result->output + std::to_string(result->exit_status) : result.error().message;
}

TEST(StandIns, SrunFindsTheCommandBehindUsualOptions) {
  const std::string show = "echo \"$1 of $SLURM_NTASKS, rank $SLURM_PROCID\"";
  EXPECT_EQ(run_stand_in({"srun", "sh", "-c", show, "_", "-n"}), "-n of 1, rank 0\n0");
  EXPECT_EQ(run_stand_in({"srun", "--ntasks=1", "-c", "4", "sh", "-c", show, "_", "a"}), "a of 1, rank 0\n0");
  EXPECT_EQ(run_stand_in({"srun", "-n4", "-l", "--gres", "gpu:1", "--cpu-bind=none", "--exclusive", "--mpi=pmi2", "--", "sh", "-c", show, "_", "b"}),
            "b of 4, rank 0\n0");
  EXPECT_EQ(run_stand_in({"srun", "-N1", "--pty", "-u", "--kill-on-bad-exit=1", "sh", "-c", "exit 9"}), "9");
  EXPECT_EQ(run_stand_in({"srun"}), "1");
}

TEST(StandIns, MpirunRunsRankZeroAndTheOthersDoNothing) {
  EXPECT_EQ(run_stand_in({"mpirun", "--allow-run-as-root", "-np", "4", "-x", "A=5", "--mca", "btl", "tcp,self", "--bind-to", "none", "sh", "-c",
                          "echo $A $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE"}),
            "5 0 4\n0");
  EXPECT_EQ(run_stand_in({"mpiexec", "-n", "2", "-genv", "B", "6", "sh", "-c", "echo $B $PMI_RANK"}), "6 0\n0");
  EXPECT_EQ(run_stand_in({"sbatch", "next.sh"}), "Submitted batch job 67108862\n0");
  EXPECT_EQ(run_stand_in({"scancel", "1"}), "0");
  EXPECT_EQ(run_stand_in({"scontrol", "show", "hostnames", "a,b"}), "a\nb\n0");
  EXPECT_EQ(run_stand_in({"scontrol", "show", "hostnames"}), "n1\n0");
}

TEST(StandIns, AllRanksRunWhereThereAreGpusForThem) {
  std::string directory = (std::filesystem::temp_directory_path() / "gpumem-stand-ins-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/nvidia-smi") << "#!/bin/sh\nprintf 'GPU 0: A\\nGPU 1: A\\n'\n";
  ::chmod((directory + "/nvidia-smi").c_str(), 0755);
  const std::string path = directory + ":/usr/bin:/bin";
  const std::string show = "sleep 0.$(($1 * 3)); echo $1 of $2 ${GPUMEM_ALONE:-together}";
  EXPECT_EQ(run_stand_in({"srun", "-n2", "sh", "-c", "set -- $SLURM_PROCID $SLURM_NTASKS; " + show}, path), "0 of 2 together\n1 of 2 together\n0");
  EXPECT_EQ(run_stand_in({"srun", "-n3", "sh", "-c", "set -- $SLURM_PROCID $SLURM_NTASKS; " + show}, path), "0 of 3 1\n0");
  EXPECT_EQ(run_stand_in({"srun", "-N2", "--ntasks-per-node=1", "sh", "-c", "set -- $SLURM_PROCID $SLURM_NTASKS; " + show}, path), "0 of 2 1\n0");
  EXPECT_EQ(run_stand_in({"mpirun", "-n", "2", "sh", "-c", "set -- $PMI_RANK $PMI_SIZE; " + show}, path), "0 of 2 together\n1 of 2 together\n0");
  EXPECT_EQ(run_stand_in({"srun", "-n2", "sh", "-c", "exit $SLURM_PROCID"}, path), "1");
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace gpumem::probe
