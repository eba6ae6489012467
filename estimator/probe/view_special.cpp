// SPDX-License-Identifier: Apache-2.0
// /proc, /sys, /dev, /run and stand-ins of the sandbox's view.
#include "estimator/probe/view_special.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace gpumem::probe {
namespace {

constexpr long kMountSetattr = 442;  // the same number on every architecture

void touch(const std::string& path) { FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)); }

bool bind(const std::string& source, const std::string& target, bool recursive = false) {
  return ::mount(source.c_str(), target.c_str(), nullptr, recursive ? MS_BIND | MS_REC : MS_BIND, nullptr) == 0;
}

void make_proc(const std::string& proc, std::vector<std::string>& notes) {
  if (::mount("proc", proc.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) {
    // For root these are writable, and of the whole machine.
    for (const char* part : {"/sys", "/sysrq-trigger", "/irq", "/bus", "/fs"}) {
      if (bind(proc + part, proc + part)) set_read_only(proc + part);
    }
  } else {
    // Inside a container whose own /proc is partly covered the kernel allows no new one.
    const std::string reason = std::strerror(errno);
    if (bind("/proc", proc, true) && set_read_only(proc)) {
      notes.push_back("the program saw the host's /proc, read-only: a new one is not allowed here (" + reason + ")");
    } else {
      ::umount2(proc.c_str(), MNT_DETACH);
      notes.push_back("the program had no /proc: a new one is not allowed here (" + reason + ")");
    }
  }
  struct stat found {};
  const std::string driver = proc + "/driver/nvidia";
  if (::stat(driver.c_str(), &found) == 0) ::mount("none", driver.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k");
}

Status make_dev(const std::string& dev, const std::string& space) {
  if (::mount("gpumem-probe", dev.c_str(), "tmpfs", MS_NOSUID, "mode=0755,size=64k") != 0) return errno_error("mounting /dev");
  for (const char* name : {"null", "zero", "full", "random", "urandom", "tty"}) {
    const std::string path = std::string("/dev/") + name, target = dev + "/" + name;
    touch(target);
    if (!bind(path, target) && std::strcmp(name, "null") == 0) return errno_error("binding /dev/null");
  }
  ::mkdir((dev + "/pts").c_str(), 0755);
  // Without pseudo terminals programs live; a kernel that refuses them here stops nothing.
  ::mount("devpts", (dev + "/pts").c_str(), "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
  for (const auto& [target, name] : {std::pair{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"},
                                     {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}}) {
    if (::symlink(target, (dev + "/" + name).c_str()) != 0) return errno_error(std::string("making /dev/") + name);
  }
  const std::string shared = space + "/shm";
  ::mkdir(shared.c_str(), 01777);
  ::mkdir((dev + "/shm").c_str(), 01777);
  if (!bind(shared, dev + "/shm")) return errno_error("binding /dev/shm");
  return {};
}

// Ranks of one machine find each other by its name. The sandbox has a loopback and no name server, and what the host's own
// file says of the name is an address that leads nowhere here: ours comes first.
void name_this_host(const std::string& space, const std::string& root, std::vector<std::string>& notes) {
  char buffer[256] = "";
  if (::gethostname(buffer, sizeof buffer - 1) != 0 || buffer[0] == '\0') return;
  const std::string name = buffer, first_label = name.substr(0, name.find('.'));
  std::string text = "127.0.0.1 localhost " + name + (first_label == name ? "" : " " + first_label) + "\n";
  if (const auto known = read_file(root + "/etc/hosts", 1 << 20)) text += *known;
  const std::string own = space + "/hosts", target = root + "/etc/hosts";
  struct stat found {};
  // A symbolic link may lead out of the view.
  const bool possible = ::lstat(target.c_str(), &found) == 0 ? S_ISREG(found.st_mode) : (touch(target), true);
  FileDescriptor file(::open(own.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const bool written = file.valid() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!possible || !written || !bind(own, target)) notes.push_back("the program may not have found this host by its name: /etc/hosts cannot be replaced");
}

Status make_run(const ViewPlan& plan, const std::string& run, const std::string& space) {
  const std::string own = space + "/run";
  ::mkdir(own.c_str(), 0755);
  if (!bind(own, run)) return errno_error("binding /run");
  ::mkdir((run + "/lock").c_str(), 01777);
  if (plan.runtime_directory.starts_with("/run/")) {
    if (auto made = make_directories(run + plan.runtime_directory.substr(4), 0700); !made) return made;
  }
  const std::string shared = run + (kSharedInView + std::strlen("/run"));
  ::mkdir(shared.c_str(), 0755);
  if (!bind(plan.private_directory + "/shared", shared)) return errno_error(std::string("binding ") + kSharedInView);
  return {};
}

}  // namespace

bool set_read_only(const std::string& path) {
  struct {  // struct mount_attr of mount_setattr(2), which older C libraries lack
    std::uint64_t set = 1;  // MOUNT_ATTR_RDONLY
    std::uint64_t clear = 0, propagation = 0, user_namespace = 0;
  } attributes;
  if (::syscall(kMountSetattr, AT_FDCWD, path.c_str(), AT_RECURSIVE, &attributes, sizeof attributes) == 0) return true;
  if (errno != ENOSYS) return false;
  // Before Linux 5.12: one mount at a time, and the flags that are locked must be repeated.
  struct statvfs found {};
  if (::statvfs(path.c_str(), &found) != 0) return false;
  unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY;
  if (found.f_flag & ST_NOSUID) flags |= MS_NOSUID;
  if (found.f_flag & ST_NODEV) flags |= MS_NODEV;
  if (found.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
  if (found.f_flag & ST_NOATIME) flags |= MS_NOATIME;
  if (found.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
  if (found.f_flag & ST_RELATIME) flags |= MS_RELATIME;
  return ::mount(nullptr, path.c_str(), nullptr, flags, nullptr) == 0;
}

Status make_special_directories(const ViewPlan& plan, const std::string& space, const std::string& root,
                                std::vector<std::string>& notes) {
  for (const char* name : {"/proc", "/sys", "/dev", "/run"}) ::mkdir((root + name).c_str(), 0755);
  make_proc(root + "/proc", notes);
  if (bind("/sys", root + "/sys", true)) {
    if (!set_read_only(root + "/sys")) {
      ::umount2((root + "/sys").c_str(), MNT_DETACH);
      notes.push_back("the program had no /sys: it cannot be made read-only");
    }
  }
  if (auto made = make_dev(root + "/dev", space); !made) return made;
  name_this_host(space, root, notes);
  return make_run(plan, root + "/run", space);
}

void bind_stand_ins(const ViewPlan& plan, const std::string& root) {
  for (const auto& [program, stand_in] : plan.replaced_programs) {
    const std::string target = root + program;
    struct stat found {};
    // A symbolic link is left alone: what it points to may be a program with many names.
    if (::lstat(target.c_str(), &found) == 0 && S_ISREG(found.st_mode)) bind(stand_in, target);
  }
}

}  // namespace gpumem::probe
