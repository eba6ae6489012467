// SPDX-License-Identifier: Apache-2.0
// The sandbox's view of the file systems: the private copy of every tree.
#include "estimator/probe/view.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "estimator/probe/mounts.h"
#include "estimator/probe/view_special.h"

namespace gpumem::probe {
namespace {

// A directory with more entries than this is not rebuilt entry by entry: each costs a mount.
constexpr int kMostEntries = 2000;
// Single files beside mount points are copied up to this size, so that they can be written; larger ones are read-only.
constexpr off_t kLargestCopiedFile = 1 << 20;
// Directories of a foreign group that are rebuilt as private ones.
constexpr int kMostRebuilt = 500;

class Builder {
 public:
  Builder(const ViewPlan& plan, std::vector<std::string>& notes) : plan_(plan), notes_(notes) {}

  Status build();

 private:
  Status prepare_space();
  void tree(const std::string& source, const std::string& target);
  void overlay_or_bind(const std::string& source, const std::string& target);
  Status overlay(const std::string& source, const std::string& target);
  void open_way(const std::string& source, const std::string& upper);
  void shadow(const std::string& source, const std::string& target, bool children_read_only);
  void entry(const std::string& source, const std::string& target, bool read_only);
  void shadow_writable_directories(const std::string& source, const std::string& target, bool foreign_only);
  void bind_read_only(const std::string& source, const std::string& target);
  void note_once(const std::string& note);

  const ViewPlan& plan_;
  std::vector<std::string>& notes_;
  std::vector<Mount> mounts_;
  std::string space_;   // private tmpfs
  std::string uppers_;  // where overlays write: below space_, or a directory of the host's disk
  bool uppers_on_disk_ = false;
  bool rebuilding_ = false;  // Note [Foreign groups]
  int rebuilt_ = 0;
  int next_ = 0;
};

// Inside the namespace every id that it cannot map looks the same: a directory of ours that is not our group's.
bool seems_foreign(const std::string& directory) {
  struct stat found {};
  return ::stat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() && found.st_gid != ::getegid();
}

// The mode that a copy of a directory gets: what the user could not write stays so.
mode_t copy_mode(const std::string& source, const struct stat& found) {
  mode_t mode = found.st_mode & 07777;
  if (::geteuid() != 0 && found.st_uid != ::geteuid() && ::access(source.c_str(), W_OK) != 0) mode &= ~static_cast<mode_t>(0222);
  if (::geteuid() != 0 && found.st_uid != ::geteuid() && ::access(source.c_str(), X_OK) == 0) mode |= 0500;
  return mode;
}

void make_like(const std::string& source, const std::string& target) {
  struct stat found {};
  ::mkdir(target.c_str(), 0700);
  if (::stat(source.c_str(), &found) == 0) ::chmod(target.c_str(), copy_mode(source, found));
}

void Builder::note_once(const std::string& note) {
  for (const auto& known : notes_) {
    if (known == note) return;
  }
  notes_.push_back(note);
}

Status Builder::prepare_space() {
  space_ = plan_.private_directory + "/space";
  ::mkdir(space_.c_str(), 0700);
  const std::string options = "mode=0755,size=" + std::to_string(plan_.writable_bytes);
  if (::mount("gpumem-probe", space_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return errno_error("mounting a private tmpfs");
  }
  uppers_ = space_ + "/upper";
  if (::mkdir(uppers_.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("making " + uppers_);
  // Without user.* attributes an overlay cannot replace a directory by another one; tmpfs has them from Linux 6.6 on.
  if (::setxattr(uppers_.c_str(), "user.gpumem", "1", 1, 0) != 0 && errno == EOPNOTSUPP) {
    const std::string disk = plan_.private_directory + "/disk";
    ::mkdir(disk.c_str(), 0700);
    uppers_on_disk_ = ::setxattr(disk.c_str(), "user.gpumem", "1", 1, 0) == 0;
    if (uppers_on_disk_) uppers_ = disk;
  }
  return {};
}

void Builder::bind_read_only(const std::string& source, const std::string& target) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    note_once("the program could not see " + source + ": binding it failed (" + std::strerror(errno) + ")");
    return;
  }
  if (!set_read_only(target)) {
    ::umount2(target.c_str(), MNT_DETACH);
    note_once("the program could not see " + source + ": it cannot be made read-only (" + std::strerror(errno) + ")");
  }
}

// An overlay copies a file's parent directories up with it, and fails (EOVERFLOW) where one belongs to somebody whom the
// namespace cannot map: root's /data above the user's /data/u. What is in the upper layer already needs no copying.
void Builder::open_way(const std::string& source, const std::string& upper) {
  if (::geteuid() == 0) return;
  for (const auto& wanted : plan_.writable_directories) {
    if (wanted == source || !is_within(wanted, source)) continue;
    std::size_t at = source == "/" ? 0 : source.size();
    while (at != std::string::npos) {
      at = wanted.find('/', at + 1);
      const std::string directory = wanted.substr(0, at);
      struct stat found {};
      if (::lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) break;
      make_like(directory, upper + directory.substr(source == "/" ? 0 : source.size()));
    }
  }
}

Status Builder::overlay(const std::string& source, const std::string& target) {
  const std::string number = std::to_string(next_++);
  const std::string upper = uppers_ + "/u" + number, work = uppers_ + "/w" + number;
  make_like(source, upper);
  open_way(source, upper);
  ::mkdir(work.c_str(), 0700);
  // Descriptors instead of paths: a path may hold the separators of the option string, and be longer than it may be.
  FileDescriptor lower_fd(::open(source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  FileDescriptor upper_fd(::open(upper.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  FileDescriptor work_fd(::open(work.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!lower_fd.valid() || !upper_fd.valid() || !work_fd.valid()) return errno_error("opening " + source);
  auto path_of = [](const FileDescriptor& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); };
  const std::string options =
      "userxattr,lowerdir=" + path_of(lower_fd) + ",upperdir=" + path_of(upper_fd) + ",workdir=" + path_of(work_fd);
  if (::mount("gpumem-probe", target.c_str(), "overlay", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return errno_error("overlay over " + source);
  }
  return {};
}

void Builder::overlay_or_bind(const std::string& source, const std::string& target) {
  const Mount* mount = mount_of(mounts_, source);
  if (mount != nullptr && is_kernel_file_system(mount->type)) return;
  if (mount != nullptr && mount->read_only) {
    bind_read_only(source, target);
    return;
  }
  auto done = overlay(source, target);
  if (done) {
    shadow_writable_directories(source, target, true);
    return;
  }
  note_once("no copy-on-write view of " + source + " (" + done.error().message + "): the program saw it read-only");
  bind_read_only(source, target);
  shadow_writable_directories(source, target, false);
}

// Copies a file's content; false where it could not be read or written.
bool copy_file(const std::string& source, const std::string& target, mode_t mode) {
  auto content = read_file(source, kLargestCopiedFile);
  if (!content) return false;
  FileDescriptor file(::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return false;
  const bool written = ::write(file.get(), content->data(), content->size()) == static_cast<ssize_t>(content->size());
  return written && ::fchmod(file.get(), mode & 07777) == 0;
}

void Builder::entry(const std::string& source, const std::string& target, bool read_only) {
  struct stat found {};
  if (::lstat(source.c_str(), &found) != 0) return;
  if (S_ISLNK(found.st_mode)) {
    char link[4096];
    const ssize_t size = ::readlink(source.c_str(), link, sizeof link - 1);
    if (size > 0) {
      link[size] = '\0';
      if (::symlink(link, target.c_str()) != 0) note_once("the program could not see the symbolic link " + source);
    }
  } else if (S_ISDIR(found.st_mode)) {
    if (read_only) {
      ::mkdir(target.c_str(), 0755);
      bind_read_only(source, target);
    } else {
      tree(source, target);
    }
  } else if (S_ISREG(found.st_mode)) {
    if (found.st_size <= kLargestCopiedFile && copy_file(source, target, found.st_mode)) return;
    FileDescriptor(::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    bind_read_only(source, target);
  }
  // Sockets, pipes and devices lead out of the sandbox: they are left out.
}

void Builder::shadow(const std::string& source, const std::string& target, bool children_read_only) {
  make_like(source, target);
  // Entries are made with our rights, whatever the mode is in the end.
  struct stat made {};
  ::stat(target.c_str(), &made);
  ::chmod(target.c_str(), 0700);
  DIR* listing = ::opendir(source.c_str());
  if (listing == nullptr) {
    note_once("the program saw " + source + " without its files (" + std::strerror(errno) + ")");
    // What is mounted below can often be reached all the same.
    for (const auto& mount : mounts_) {
      if (mount.point == source || !is_within(mount.point, source)) continue;
      const std::string rest = mount.point.substr(source == "/" ? 1 : source.size() + 1);
      const std::string child = target + "/" + rest.substr(0, rest.find('/'));
      if (::access(child.c_str(), F_OK) != 0) tree((source == "/" ? "" : source) + "/" + rest.substr(0, rest.find('/')), child);
    }
  }
  int entries = 0;
  while (listing != nullptr) {
    const dirent* found = ::readdir(listing);
    if (found == nullptr) break;
    const std::string name = found->d_name;
    if (name == "." || name == "..") continue;
    const std::string child = (source == "/" ? "" : source) + "/" + name;
    // The view builds these itself; and the probe's own directory is nobody's business.
    if (child == "/proc" || child == "/sys" || child == "/dev" || child == "/run" || child == plan_.private_directory) {
      if (source == "/") ::mkdir((target + "/" + name).c_str(), 0755);
      continue;
    }
    if (++entries > kMostEntries) {
      note_once("the program saw only the first " + std::to_string(kMostEntries) + " entries of " + source);
      break;
    }
    entry(child, target + "/" + name, children_read_only);
  }
  if (listing != nullptr) ::closedir(listing);
  ::chmod(target.c_str(), made.st_mode & 07777);
}

void Builder::tree(const std::string& source, const std::string& target) {
  // An overlay must not have its own upper directory in its lower one.
  const bool holds_uppers = uppers_on_disk_ && is_within(uppers_, source);
  if (has_mounts_below(mounts_, source) || holds_uppers) {
    shadow(source, target, false);
    return;
  }
  if (rebuilding_ && rebuilt_ < kMostRebuilt && seems_foreign(source)) {
    ++rebuilt_;
    shadow(source, target, false);
    return;
  }
  make_like(source, target);
  overlay_or_bind(source, target);
}

void Builder::shadow_writable_directories(const std::string& source, const std::string& target, bool foreign_only) {
  if (rebuilding_) return;
  for (const auto& wanted : foreign_only ? plan_.foreign_directories : plan_.writable_directories) {
    if (!is_within(wanted, source)) continue;
    struct stat found {};
    if (::stat(wanted.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) continue;
    const std::string copy = space_ + "/shadow" + std::to_string(next_++);
    rebuilding_ = foreign_only;
    shadow(wanted, copy, !foreign_only);
    rebuilding_ = false;
    const std::string place = target + wanted.substr(source == "/" ? 0 : source.size());
    if (::mount(copy.c_str(), place.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0) {
      note_once("in " + wanted + " the program could make new files but not change large existing ones");
    }
  }
}

Status Builder::build() {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return errno_error("making the mounts private");
  auto text = read_file("/proc/self/mountinfo");
  if (!text) return text.error();
  mounts_ = visible_mounts(parse_mountinfo(*text));
  if (auto ready = prepare_space(); !ready) return ready;

  const std::string root = space_ + "/root";
  ::mkdir(root.c_str(), 0755);
  if (::mount(root.c_str(), root.c_str(), nullptr, MS_BIND, nullptr) != 0) return errno_error("binding the new root");
  shadow("/", root, false);
  if (auto made = make_special_directories(plan_, space_, root, notes_); !made) return made;
  bind_stand_ins(plan_, root);

  if (::chdir(root.c_str()) != 0) return errno_error("entering the new root");
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return errno_error("pivot_root");
  // The old root now lies over the new one.
  if (::umount2(".", MNT_DETACH) != 0) return errno_error("leaving the old root");
  if (::chdir("/") != 0) return errno_error("entering the new root");
  return {};
}

}  // namespace

Status enter_view(const ViewPlan& plan, std::vector<std::string>& notes) {
  // Modes are set as they are meant.
  const mode_t before = ::umask(0);
  auto done = Builder(plan, notes).build();
  ::umask(before);
  return done;
}

}  // namespace gpumem::probe
