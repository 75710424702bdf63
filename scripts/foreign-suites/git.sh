# git's t/, with a git built from the same source.
part="basics, hashes, threads, packs, commit graphs"
quick="t000[01678] t001[12569] t006[0-9] t0090 t0095 t1[03]0[0-6] t300[0-3] t4013 t53[01][0-9] t532[0-9]"

build() {
  debian_source git
  make -s -C source -j2 CFLAGS=-O1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1
}

run() {
  cd source/t
  local tests=() pattern test
  [ -z "$whole" ] || quick=t
  for pattern in $quick; do tests+=($(compgen -G "$pattern*.sh")); done
  for test in "${tests[@]}"; do
    echo "file ${test%%-*}"
    on sh "$test" --root="$folder/git/trash" || true
  done
}

verdicts() {
  awk '/^file / { file = $2 }
    /^(not )?ok [0-9]+/ {
      verdict = /^not/ ? "fail" : "pass"
      if (/# TODO/ || /# skip/) verdict = "skip"
      number = $1 == "not" ? $3 : $2
      print verdict, file "." number
    }'
}
