# SPDX-License-Identifier: Apache-2.0
# Preloading everything into ordinary commands changes neither what they print nor their exit status: the same command twice, plain and
# with the preloads, for at least a hundred commands of this machine. preload_test has the rules that make it so.
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ.get("abs_top_builddir") or os.path.dirname(os.path.dirname(os.getcwd()))
LIBRARIES = [os.path.join(BUILD, "estimator", *name.split("/")) for name in
             ("meter/libgpumem_meter.so", "virtual_gpu/libgpumem_vgpu.so", "virtual_gpu/libcuda.so.1", "virtual_gpu/libnvidia-ml.so.1")]
LEAST = 100
# Run by sh in a new directory with a file `text` of 40 lines and an empty directory `d`; those whose first word is not here are left out.
COMMANDS = r"""
bash -c 'for i in 1 2 3; do (echo $i) & wait; done; echo $((6 * 7)) | cat; exit 3'
dash -c 'trap "echo trapped" EXIT; x=$(echo sub); echo $x; false'
sh -c 'exec sort text'
git --version
git hash-object text
git init -q . && git add text && git -c user.name=a -c user.email=a@b commit -q -m one && git show --stat --format=%s
ssh -V
tar cf - text | tar tf -
java -version
javac -version
python3 -c 'import os, threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); p = os.fork(); p and os.wait(); print(p >= 0, flush=True)'
python3 -c 'import ctypes, multiprocessing as m; print(ctypes.CDLL(None).getpid() > 0, m.get_context("fork").Pool(2).map(abs, [-1, -2]))'
python3 -c 'import ctypes; ctypes.CDLL("libno-such.so")'
perl -e 'print join(",", map { $_ * $_ } 1 .. 5), "\n"; exit 4'
perl -e 'fork // die; wait; print "done\n"'
gcc --version
g++ --version
echo 'int main() { return 7; }' > m.c && gcc -o m m.c && ./m
cc -E -x c /dev/null
cpp --version
ld --version
as --version
ar --version
nm --version
objdump --version
readelf --version
strings --version
strip --version
size --version
gdb --version
make --version
printf 'all:\n\t@echo made\n' | make -s -f -
cmake --version
ninja --version
autoconf --version
automake --version
m4 --version
pkg-config --version
awk 'BEGIN { for (i = 0; i < 3; ++i) print i; exit 3 }'
gawk --version
mawk 'BEGIN { print 1 }'
sed -n '2,4p;$=' text
grep -c line text
egrep 'line (1|2)$' text
find . -name 'te*' -print
xargs -a text -n 10 echo
sort -rn text
uniq text
wc text
head -n 2 text
tail -n 2 text
cut -c1-3 text
tr a-z A-Z < text
tee copy < text
cat text
tac text
nl text
od -c text
hexdump -C text
xxd text
md5sum text
sha1sum text
sha256sum text
sha512sum text
b2sum text
cksum text
sum text
base64 text
base32 text
basename /a/b.c .c
dirname /a/b/c
realpath --relative-to=. text
readlink -f /etc
stat -c %s text
ls text d
dir
vdir --version
du -b text
df --version
date -u -d @0
id -u
whoami
groups
uname -s
arch
nproc
seq 5
factor 5040 97
expr 6 \* 7
test -f nothing
[ 1 -eq 1 ]
printf '%s-%d\n' a 1
echo hello
yes | head -n 3
true
false
sleep 0
timeout 5 echo in time
timeout 0.1 sleep 5
nice -n 1 echo nice
nohup echo up
stdbuf -oL echo buffered
env -i PATH="$PATH" echo clean
setsid -w echo session
split -l 20 text && ls
csplit -s text 10 && ls
join text text
paste text text
comm text text
diff text text
cmp text /etc/passwd
patch --version
fold -w 3 text
fmt text
expand text
unexpand text
pr -h x -l 100 -t text
ptx text
tsort /dev/null
numfmt --to=iec 1048576
truncate -s 5 text && cat text
touch new && ls
mkdir a && ls
rmdir d && ls
cp text other && cat other
mv text moved && ls
ln -s text link && readlink link
rm text && ls
chmod 600 text && stat -c %a text
install -m 640 text i && stat -c %a i
dd if=text of=dd.out bs=1 count=10 status=none && cat dd.out
mkfifo f && ls
tty
pathchk text
getconf PAGE_SIZE
file text
gzip -nc text | gunzip
bzip2 -c text | bunzip2
xz -c text | unxz
zstd -qc text | unzstd -qc
zip -q z.zip text && unzip -l z.zip text > /dev/null && echo zipped
sqlite3 :memory: 'select 6 * 7'
jq -n '6 * 7'
openssl version
gpg --version
curl --version
wget --version
rsync --version
vim --version
less --version
man --version
ps --version
top -v
free --version
kill -l
pgrep --version
lscpu --version
mount --version
findmnt --version
ip -V
getent passwd root
dpkg --version
apt-get --version
systemctl --version
tmux -V
node --version
ruby --version
php --version
go version
rustc --version
ldconfig --version
locale -a
iconv -f UTF-8 -t UTF-16LE text
msgfmt --version
bc --version
dc --version
ed --version
which sh
tput -V
clear -V
infocmp -V
script --version
flock lock echo locked
unshare --version
nsenter --version
chrt --version
taskset --version
ionice --version
sbatch --version
squeue --version
munge --version
valgrind --version
strace --version
nvcc --version
"""


def run(command, environment):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as file:
            file.writelines(f"line {n}\n" for n in range(1, 41))
        os.mkdir(os.path.join(folder, "d"))
        environment = {**environment, "HOME": folder, "TMPDIR": folder}
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, check=False)
        return done.returncode, done.stdout.replace(folder.encode(), b"FOLDER")


def main():
    for library in LIBRARIES:
        if not os.path.exists(library):
            sys.exit(f"{library} is not built")
    plain = {**os.environ, "LC_ALL": "C", "GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
    plain.pop("LD_PRELOAD", None)
    # No virtual GPU, and one that cannot be had.
    preloaded = [{**plain, "LD_PRELOAD": " ".join(LIBRARIES)},
                 {**plain, "LD_PRELOAD": " ".join(LIBRARIES), "GPUMEM_BOOK": "/nonexistent/book", "GPUMEM_METER_BOOK": "/nonexistent/book"}]
    commands = [line for line in COMMANDS.splitlines() if line and (shutil.which(line.split()[0]) or line.split()[0] in ("[", "test"))]
    different = []

    def both(command):
        expected = run(command, plain)
        return [(command, expected, got) for got in (run(command, environment) for environment in preloaded) if got != expected]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(both, commands):
            different += found
    for command, expected, got in different:
        print(f"{command}\n  without: {expected}\n  with:    {got}")
    print(f"{len(commands)} commands, {len(different)} of them different")
    sys.exit(1 if different or len(commands) < LEAST else 0)


if __name__ == "__main__":
    main()
