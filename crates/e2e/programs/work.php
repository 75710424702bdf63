<?php
// Some work for each extension that is there. What it prints does not depend on time, place or allocator.
error_reporting(E_ALL & ~E_DEPRECATED);
mysqli_report_off();

function mysqli_report_off(): void {
    if (extension_loaded('mysqli')) mysqli_report(MYSQLI_REPORT_OFF);
}

$work = [
    'standard' => function () {
        $words = [];
        for ($i = 0; $i < 20000; $i++) $words[] = str_repeat(chr(97 + $i % 26), $i % 50) . dechex($i * 7919);
        sort($words);
        $text = implode(',', array_unique($words));
        preg_match_all('/([a-f]+)(\d+)/', $text, $found);
        return [md5($text), count($found[0]), md5(serialize($words)), md5(var_export(array_count_values(str_split($text)), true))];
    },
    'json' => fn () => md5(json_encode(json_decode(json_encode(range(1, 20000)), true), JSON_PRETTY_PRINT)),
    'zlib' => fn () => md5(gzuncompress(gzcompress(str_repeat('abcdefgh', 50000), 9))),
    'bz2' => fn () => md5(bzdecompress(bzcompress(str_repeat('abcdefgh', 50000)))),
    'bcmath' => fn () => md5(bcpow('1234567890123456789', '300')),
    'gmp' => fn () => md5(gmp_strval(gmp_fact(2000))),
    'mbstring' => fn () => md5(mb_convert_encoding(mb_strtoupper(str_repeat('äöüß日本語', 5000)), 'UTF-16')),
    'iconv' => fn () => md5(iconv('UTF-8', 'UTF-16LE', str_repeat('äöüß日本語', 5000))),
    'intl' => function () {
        $collator = new Collator('de_DE');
        $names = ['Zebra', 'Äpfel', 'Apfel', 'Öl', 'Ofen'];
        $collator->sort($names);
        return [$names, (new NumberFormatter('de_DE', NumberFormatter::DECIMAL))->format(1234567.891),
            transliterator_transliterate('Any-Latin; Latin-ASCII', 'Владимир 日本'), Normalizer::normalize("a\u{308}")];
    },
    'dom' => function () {
        $document = new DOMDocument();
        $root = $document->appendChild($document->createElement('list'));
        for ($i = 0; $i < 3000; $i++) $root->appendChild($document->createElement('item', "text $i"))->setAttribute('n', (string) $i);
        $xpath = new DOMXPath($document);
        @$document->loadXML($text = $document->saveXML());
        return [md5($text), $xpath->query('//item[@n mod 7 = 3]')->length];
    },
    'simplexml' => function () {
        $list = simplexml_load_string('<a>' . str_repeat('<b c="d">e<f/></b>', 2000) . '</a>');
        return [count($list->b), (string) $list->b[1999]['c'], md5($list->asXML())];
    },
    'xml' => function () {
        $names = 0;
        $parser = xml_parser_create();
        xml_set_element_handler($parser, function () use (&$names) { $names++; }, function () {});
        return [xml_parse($parser, '<a>' . str_repeat('<b/>', 5000) . '</a>', true), $names];
    },
    'xmlwriter' => function () {
        $writer = new XMLWriter();
        $writer->openMemory();
        $writer->startDocument();
        $writer->startElement('a');
        for ($i = 0; $i < 2000; $i++) $writer->writeElement('b', "c$i");
        $writer->endElement();
        return md5($writer->outputMemory());
    },
    'xmlreader' => function () {
        $reader = XMLReader::XML('<a>' . str_repeat('<b>c</b>', 2000) . '</a>');
        for ($nodes = 0; $reader->read(); $nodes++);
        return $nodes;
    },
    'xsl' => function () {
        $style = new DOMDocument();
        $style->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">' .
            '<o><xsl:for-each select="//b"><xsl:sort select="." order="descending"/><p><xsl:value-of select="."/></p></xsl:for-each></o>' .
            '</xsl:template></xsl:stylesheet>');
        $input = new DOMDocument();
        $input->loadXML('<a>' . implode('', array_map(fn ($i) => "<b>$i</b>", range(100, 900))) . '</a>');
        $processor = new XSLTProcessor();
        $processor->importStylesheet($style);
        return md5($processor->transformToXML($input));
    },
    'sqlite3' => function () {
        $database = new SQLite3(':memory:');
        $database->exec('CREATE TABLE t (a INTEGER, b TEXT)');
        $insert = $database->prepare('INSERT INTO t VALUES (?, ?)');
        for ($i = 0; $i < 5000; $i++) {
            $insert->bindValue(1, $i);
            $insert->bindValue(2, str_repeat('x', $i % 300));
            $insert->execute();
        }
        $database->createFunction('twice', fn ($n) => 2 * $n);
        return $database->querySingle('SELECT sum(twice(a)) AS s, group_concat(length(b)) AS l FROM t WHERE a % 50 = 7', true);
    },
    'pdo_sqlite' => function () {
        $database = new PDO('sqlite::memory:');
        $database->exec('CREATE TABLE t (a)');
        $insert = $database->prepare('INSERT INTO t VALUES (?)');
        for ($i = 0; $i < 3000; $i++) $insert->execute([md5((string) $i)]);
        return md5(implode($database->query('SELECT a FROM t ORDER BY a')->fetchAll(PDO::FETCH_COLUMN)));
    },
    'gd' => function () {
        $image = imagecreatetruecolor(400, 300);
        for ($i = 0; $i < 200; $i++) imagefilledellipse($image, $i * 2, $i, 50, 30, imagecolorallocate($image, $i, 255 - $i, 99));
        imagestring($image, 5, 10, 10, 'text', 0xffffff);
        ob_start();
        imagepng(imagescale(imagerotate($image, 30, 0), 200));
        return md5(ob_get_clean());
    },
    'zip' => function () {
        $file = tempnam(sys_get_temp_dir(), 'zip');
        $zip = new ZipArchive();
        $zip->open($file, ZipArchive::OVERWRITE | ZipArchive::CREATE);
        for ($i = 0; $i < 100; $i++) $zip->addFromString("file-$i", str_repeat("line $i\n", 500));
        $zip->close();
        $zip->open($file);
        $text = $zip->getFromName('file-77');
        $count = $zip->numFiles;
        $zip->close();
        unlink($file);
        return [$count, md5($text)];
    },
    'openssl' => function () {
        $key = str_repeat('k', 32);
        $cipher = openssl_encrypt(str_repeat('text', 10000), 'aes-256-cbc', $key, 0, str_repeat('i', 16));
        return [md5($cipher), strlen(openssl_decrypt($cipher, 'aes-256-cbc', $key, 0, str_repeat('i', 16))),
            openssl_pkey_get_details(openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC, 'curve_name' => 'prime256v1']))['bits']];
    },
    'sodium' => fn () => md5(sodium_crypto_generichash(str_repeat('x', 100000))),
    'curl' => function () {
        file_put_contents($file = tempnam(sys_get_temp_dir(), 'curl'), str_repeat('curl', 50000));
        $handles = curl_multi_init();
        $all = [];
        for ($i = 0; $i < 8; $i++) {
            $all[] = $handle = curl_init("file://$file");
            curl_setopt_array($handle, [CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPHEADER => ["X-N: $i"]]);
            curl_multi_add_handle($handles, $handle);
        }
        do { $state = curl_multi_exec($handles, $running); } while ($running && $state === CURLM_OK);
        unlink($file);
        $refused = curl_init('http://127.0.0.1:1/');
        return [array_map(fn ($h) => md5(curl_multi_getcontent($h)), $all), curl_exec($refused), curl_errno($refused)];
    },
    'tidy' => function () {
        $tidy = new tidy();
        $tidy->parseString(str_repeat('<p>one<b>two<p>three', 300), ['indent' => true]);
        $tidy->cleanRepair();
        return md5((string) $tidy);
    },
    'soap' => function () {
        $server = new SoapServer(null, ['uri' => 'urn:t']);
        $server->addFunction('strrev');
        ob_start();
        @$server->handle('<E:Envelope xmlns:E="http://schemas.xmlsoap.org/soap/envelope/"><E:Body><t:strrev xmlns:t="urn:t">' .
            '<s xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:type="xsd:string" xmlns:xsd="http://www.w3.org/2001/XMLSchema">abc</s>' .
            '</t:strrev></E:Body></E:Envelope>');
        return md5(ob_get_clean());
    },
    'fileinfo' => fn () => finfo_buffer(finfo_open(FILEINFO_MIME_TYPE), "\x89PNG\r\n\x1a\n" . str_repeat("\0", 100)),
    'exif' => fn () => exif_tagname(256),
    'calendar' => fn () => jdtogregorian(2460000),
    'ctype' => fn () => ctype_alpha('abc'),
    'tokenizer' => fn () => count(token_get_all(file_get_contents(__FILE__))),
    'posix' => fn () => posix_strerror(2),
    'sockets' => function () {
        socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $pair);
        socket_write($pair[0], str_repeat('s', 10000));
        return strlen(socket_read($pair[1], 10000));
    },
    'ffi' => function () {
        if (PHP_SAPI !== 'cli') return 'not here';
        $libc = FFI::cdef('char *strdup(const char *); void free(void *); void *malloc(size_t);');
        for ($i = 0; $i < 100; $i++) $libc->free($copy = $libc->strdup(str_repeat('f', 100 + $i)));
        return FFI::sizeof(FFI::new('int[1000]'));
    },
    'ldap' => function () {
        $connection = ldap_connect('ldap://127.0.0.1:1');
        ldap_set_option($connection, LDAP_OPT_PROTOCOL_VERSION, 3);
        return [ldap_explode_dn('cn=a,dc=b,dc=c', 0), @ldap_bind($connection), ldap_errno($connection)];
    },
    'mysqli' => fn () => [@mysqli_connect('127.0.0.1', 'u', 'p', 'd', 1), mysqli_connect_errno()],
    'pgsql' => fn () => [@pg_connect('host=127.0.0.1 port=1 connect_timeout=2'), pg_escape_string("a'b")],
    'pdo_mysql' => fn () => failure(fn () => new PDO('mysql:host=127.0.0.1;port=1', 'u', 'p')),
    'pdo_pgsql' => fn () => failure(fn () => new PDO('pgsql:host=127.0.0.1;port=1', 'u', 'p')),
    'odbc' => fn () => [@odbc_connect('none', 'u', 'p'), odbc_error()],
    'imap' => fn () => imap_rfc822_parse_adrlist('A <a@b.c>, "D E" <d@e.f>', 'x.y'),
    'snmp' => fn () => [@snmp2_get('127.0.0.1:1', 'public', '.1.3.6.1.2.1.1.1.0', 10000, 0)],
    'enchant' => fn () => is_array(enchant_broker_describe(enchant_broker_init())),
    'pspell' => fn () => is_object(pspell_config_create('en')),
    'dba' => function () {
        $name = tempnam(sys_get_temp_dir(), 'dba');
        $base = dba_open($name, 'n', 'flatfile');
        for ($i = 0; $i < 300; $i++) dba_insert("key$i", str_repeat('v', $i), $base);
        $found = strlen(dba_fetch('key250', $base));
        dba_close($base);
        unlink($name);
        return $found;
    },
    'readline' => fn () => PHP_SAPI === 'cli' ? [readline_add_history('line'), count(readline_list_history())] : 'not here',
    'pcntl' => function () {
        if (PHP_SAPI !== 'cli') return 'not here';
        for ($codes = [], $i = 0; $i < 4; $i++) {
            if (($child = pcntl_fork()) === 0) exit(strlen(str_repeat('x', 40 + $i)));
            pcntl_waitpid($child, $status);
            $codes[] = pcntl_wexitstatus($status);
        }
        return $codes;
    },
];

function failure(callable $f) {
    try {
        $f();
        return 'none';
    } catch (Exception $e) {
        return get_class($e);
    }
}

$loaded = array_map('strtolower', get_loaded_extensions());
sort($loaded);
echo PHP_SAPI === 'cli' ? 'cli' : 'server', ': ', implode(' ', $loaded), "\n";
foreach ($work as $extension => $f) {
    if (in_array($extension, $loaded)) echo $extension, ': ', json_encode($f()), "\n";
}
for ($i = 0; $i < 60000; $i++) $list[$i % 5000] = ['n' => $i, 's' => "text $i", 'o' => (object) ['i' => $i]];
echo md5(serialize($list)), "\n", PHP_VERSION, " done\n";
