# PostgreSQL's regression suite, all of it, with Debian's server in a temporary cluster.
build() {
  debian_source postgresql-15
  debian_files postgresql-15 postgresql-client-15 postgresql-server-dev-15
  local bin=$PWD/files/usr/lib/postgresql/15
  mkdir -p modules
  gcc -O1 -shared -fPIC -I"$PWD/files/usr/include/postgresql/15/server" \
    -I"$PWD/files/usr/include/postgresql" source/src/test/regress/regress.c -o modules/regress.so
  cp "$bin"/lib/{autoinc,refint}.so modules/
  chmod -R a+rX "$folder/postgresql"
}

run() {
  local at=$PWD bin=$PWD/files/usr/lib/postgresql/15
  local out=$at/out
  rm -rf "$out" && mkdir -p "$out" && chmod a+rwx "$out"
  cd "$out"
  on bash -c "$(declare -f as_nobody); as_nobody \"\$@\"" - \
    "$bin/lib/pgxs/src/test/regress/pg_regress" --temp-instance="$out/instance" \
    --bindir="$bin/bin" --inputdir="$at/source/src/test/regress" --outputdir="$out" \
    --dlpath="$at/modules" --max-connections=4 --no-locale --port=65432 \
    --schedule="$at/source/src/test/regress/parallel_schedule" || true
  cat "$out/regression.diffs" >&2 || true
}

verdicts() {
  sed -nE 's/^(test|    ) +(\w+) +\.\.\. (ok|FAILED).*/\3 \2/p' | sed 's/^ok/pass/; s/^FAILED/fail/'
}
