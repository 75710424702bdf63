//! The folder for the results.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mallard_report::model::{Kind, Results};

/// A folder that has been checked to be writable.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates the folder and checks that it is writable, so that no session ends with results that
    /// it cannot save.
    pub fn open(path: &Path) -> Result<Folder> {
        let advice = || {
            let shown = path.display();
            format!("cannot write results to the folder {shown}; choose another with --output")
        };
        fs::create_dir_all(path).with_context(advice)?;
        let trial = path.join(format!(".trial-{}", std::process::id()));
        File::create_new(&trial)
            .and_then(|mut file| file.write_all(b"x"))
            .and_then(|()| fs::remove_file(&trial))
            .with_context(advice)?;
        Ok(Folder(path.to_owned()))
    }

    /// Writes the results in every format and returns the files, the human-readable one first.
    pub fn write(&self, results: &Results) -> Result<Vec<PathBuf>> {
        let (json, html) = match results.kind {
            Kind::Bench | Kind::Suite => ("results.json", "report.html"),
            Kind::Compare => ("compare.json", "compare.html"),
        };
        let mut files = vec![
            self.file(html, |out| mallard_report::write_html(results, out))?,
            self.file(json, |out| mallard_report::write_json(results, out))?,
        ];
        for experiment in &results.experiments {
            let name = format!("{}.csv", experiment.name);
            files.push(self.file(&name, |out| mallard_report::write_csv(experiment, out))?);
        }
        Ok(files)
    }

    fn file(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<PathBuf> {
        let (path, part) = (self.0.join(name), self.0.join(format!(".{name}.part")));
        // Readers never see a partial file, even if this process is killed while writing.
        let written = File::create(&part)
            .map(BufWriter::new)
            .and_then(|mut out| {
                write(&mut out)?;
                out.flush()
            })
            .and_then(|()| fs::rename(&part, &path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
