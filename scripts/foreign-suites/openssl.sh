# OpenSSL's own tests, with a library built from the same source. A test is a recipe.
part="memory, ASN.1, keys, EVP, CMS, TLS, threads"
quick="test_memleak test_secmem test_bio_memleak test_lhash test_stack test_sparse_array test_exdata
  test_asn1_decode test_asn1_encode test_bn test_encoder_decoder test_provider test_evp
  test_evp_extra test_evp_libctx test_x509 test_verify test_pkcs12 test_cms test_store test_sslapi
  test_ssl_new test_sslbuffers test_threads test_async test_fuzz_asn1 test_fuzz_x509 test_cmp_msg"
[ -z "$whole" ] || part= quick=

build() {
  debian_source openssl
  cd source
  ./Configure linux-x86_64 -O1 >/dev/null
  make -s -j2 build_sw
}

run() {
  cd source
  # In one line: make passes it on to a shell.
  on make -s test HARNESS_JOBS=2 TESTS="$(echo $quick)" || true
}

verdicts() {
  sed -nE 's/^([0-9]+-test_\w+\.t) \.+ (ok|skipped|Failed|Dubious|.).*/\2 \1/p' |
    sed -E 's/^ok/pass/; t; s/^skipped/skip/; t; s/^\S+/fail/'
}
